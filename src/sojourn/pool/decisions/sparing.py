"""The decisions about a pool's spare workers, whose records are in `spares.py`.

A spare is made when no copy is being opened or closed, no request waits and there is room for it.
An opening takes a ready spare, together with its charge. When room is short, the spares that
no waiting opening would take are ended before any model is evicted.
"""

from __future__ import annotations

from collections.abc import Sequence

from sojourn.pool.decisions.effects import EndSpare, MakeSpare
from sojourn.pool.decisions.planning import Demand
from sojourn.pool.decisions.residents import CopyState
from sojourn.pool.decisions.spares import QUIET_SECONDS, Spare, SpareState
from sojourn.pool.decisions.state import PoolState
from sojourn.pool.decisions.terms import CopyId, Model


def make(state: PoolState, now: float) -> None:
    """Make the missing spares, or set the timer for the next attempt."""
    spares = state.spares
    if len(spares.live) >= spares.wanted:
        return
    if any(c.is_leaving or c.state is CopyState.OPENING for c in state.residents):
        spares.quiet_at = None  # the end of that is an event, which leads here again
        return
    if spares.quiet_at is None:
        spares.quiet_at = now + QUIET_SECONDS
    make_at = max(spares.quiet_at, spares.crashes.retry_at)
    if now < make_at:
        state.wake(make_at)
        return
    if state.queue:
        return
    while len(spares.live) < spares.wanted:
        if state.budget.spare.bytes < spares.expected_bytes:
            return
        state.out.append(MakeSpare(spares.make(state.budget).number))


def is_for(state: PoolState, model: Model) -> bool:
    """Whether a copy of this model can take a spare. With `devices` that are filled evenly it
    cannot."""
    return model.takes_spares and not state.policy.devices


def take(state: PoolState) -> int | None:
    """Take a ready spare for a copy about to be opened, which also gets its room; return the
    spare's number, or None."""
    for spare in state.spares.ready():
        state.spares.forget(spare, state.budget)
        state.spares.crashes.forgive()
        state.counters.spares_taken += 1
        return spare.number
    return None


def closing_sessions(state: PoolState) -> list[CopyId]:
    """Return the sessions whose worker is ending. A spare worker may take the place of each, since
    that adds no worker. Their memory stays charged until it is returned."""
    closing = (c.id for c in state.residents if c.state is CopyState.CLOSING)
    return [copy for copy in closing if state.budget.is_session(copy)]


def give_up(state: PoolState) -> None:
    """End all spares."""
    for spare in state.spares:
        _end(state, spare)


def give_up_surplus(state: PoolState, demands: Sequence[Demand]) -> None:
    """End as many spares as the missing room requires, of those that no demand would take."""
    spares = state.spares
    takers = sum(is_for(state, state.models[demand.model].model) for demand in demands)
    surplus = [spare for spare in spares if spare.state is SpareState.MAKING]
    surplus += spares.ready()[takers:]
    needed = sum(demand.need.bytes for demand in demands)
    short = needed - state.budget.spare.bytes - state.leaving_room().bytes
    while short > 0 and surplus:
        spare = surplus.pop()
        short -= state.budget.charge_of(spare.account)
        _end(state, spare)


def _end(state: PoolState, spare: Spare) -> None:
    if spare.state is not SpareState.ENDING:
        spare.state = SpareState.ENDING
        state.out.append(EndSpare(spare.number))
