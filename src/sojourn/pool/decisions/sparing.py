"""What becomes of a pool's spare workers, between the events and the books (`spares.py`).

One is made when nothing moves and nobody waits, and if there is room for it. An open takes one that
is ready, together with the room that it was charged with. When room is short, the spares that no
waiting open would take leave before any model does.
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
    """Have what is missing made, or look again when there may be quiet."""
    spares = state.spares
    if len(spares.live) >= spares.wanted:
        return
    if any(c.is_leaving or c.state is CopyState.OPENING for c in state.residents):
        spares.quiet_at = None  # its end is an event
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
    """Whether a copy of this model can take one. Those of devices that are filled evenly cannot."""
    return model.takes_spares and not state.policy.devices


def take(state: PoolState) -> int | None:
    """One for a copy that is about to be opened, whose own its room becomes."""
    for spare in state.spares.ready():
        state.spares.forget(spare, state.budget)
        state.spares.crashes.forgive()
        state.counters.spares_taken += 1
        return spare.number
    return None


def closing_sessions(state: PoolState) -> list[CopyId]:
    """Sessions whose worker is ending. A spare one may take the place of each: there are no more
    workers than before. What they hold is charged until it is back."""
    closing = (c.id for c in state.residents if c.state is CopyState.CLOSING)
    return [copy for copy in closing if state.budget.is_session(copy)]


def give_up(state: PoolState) -> None:
    """Let all go."""
    for spare in state.spares:
        _end(state, spare)


def give_up_surplus(state: PoolState, demands: Sequence[Demand]) -> None:
    """Let those go, of the ones that no demand takes, whose room is needed."""
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
