"""Events in, effects out: the pool's decisions. No threads, no clocks, no I/O.

One writer calls the `on_*` methods, one at a time, and performs what they return, in order. What
a lease goes through is in lease_events.py, what a copy goes through in copy_events.py; here are
the questions, and what comes of time and of the owner's will.
"""

from __future__ import annotations

from collections.abc import Hashable

from sojourn.pool.decisions import explain, serving
from sojourn.pool.decisions.budget import never_fits
from sojourn.pool.decisions.copy_events import CopyEvents
from sojourn.pool.decisions.effects import Effects, Expire
from sojourn.pool.decisions.health import Crashes
from sojourn.pool.decisions.lease_events import LeaseEvents
from sojourn.pool.decisions.residents import CopyState
from sojourn.pool.decisions.state import PoolState
from sojourn.pool.decisions.status import Counters, PoolStatus
from sojourn.pool.decisions.terms import NO_ROOM, CopyId, Holder, Model, Policy
from sojourn.values import Place, format_seconds


class Scheduler(LeaseEvents, CopyEvents):
    """The decisions of one pool."""

    def __init__(self, policy: Policy) -> None:
        self._state = PoolState(policy)

    def register(self, model: Model) -> None:
        """Make a model known. One that can never fit is refused here already."""
        state = self._state
        if model.name in state.models:
            raise ValueError(f"a model named {model.name!r} is registered already")
        error = never_fits(model.name, state.need(model), state.policy.limit, NO_ROOM, ())
        if error is not None:
            raise error
        state.models[model.name] = model
        state.crashes[model.name] = Crashes()
        state.residents.register(model)

    # -- questions ----------------------------------------------------------------------------

    def __contains__(self, model: str) -> bool:
        return model in self._state.models

    def model(self, name: str) -> Model:
        return self._state.models[name]

    @property
    def is_empty(self) -> bool:
        """Whether no copy is left and nobody waits."""
        return not self._state.queue and next(iter(self._state.residents), None) is None

    @property
    def charged_bytes(self) -> int:
        return self._state.budget.charged_bytes

    @property
    def counters(self) -> Counters:
        return self._state.counters

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self._state.models)

    @property
    def is_leased(self) -> bool:
        return len(self._state.leases) > 0

    def holder(self, ticket: int) -> Holder | None:
        lease = self._state.leases.get(ticket)
        return None if lease is None else lease.holder

    def held_by(self, key: Hashable) -> list[tuple[int, CopyId]]:
        """The leases of a thread or task: ticket and copy."""
        leases = self._state.leases
        return [(held.request.ticket, held.copy) for held in leases if held.holder.key == key]

    def leaving(self, model: str) -> set[CopyId]:
        """The copies of a model that are on their way out."""
        return {copy.id for copy in self._state.residents.of(model) if copy.is_leaving}

    def has_stayed(self, copy_id: CopyId) -> bool:
        """Whether a copy that was on its way out is so no more."""
        copy = self._state.residents.current(copy_id)
        return copy is not None and not copy.is_leaving

    def status(self) -> PoolStatus:
        return self._state.status()

    def __repr__(self) -> str:
        return str(self.status())

    # -- time and will ------------------------------------------------------------------------

    def on_timer(self, now: float) -> Effects:
        """The time that was asked for has come, or any other time."""
        state = self._state
        state.timer_at = None
        for copy in state.residents:
            leaves_at = state.leaves_at(copy)
            if leaves_at is not None and copy.can_leave(now) and now >= leaves_at:
                idle = format_seconds(now - copy.last_used)
                serving.leave(state, copy, f"idle for {idle}")
        serving.dispatch(state, now)
        for copy in state.residents:
            if copy.is_idle:
                state.watch_idle(copy)
        return state.take_effects()

    def on_evict(self, model: str, now: float) -> Effects:
        """The user wants a model to go: idle copies now, leased ones when they are given back.
        A copy that somebody waits for is opened all the same."""
        state = self._state
        for copy in state.residents.of(model):
            is_wanted = copy.state is CopyState.OPENING and state.queue.has_waiters_for(model)
            if not copy.is_leaving and not is_wanted:
                copy.retiring = copy.retiring or "evicted by request"
                copy.park_retry_at = 0.0
        serving.dispatch(state, now)
        return state.take_effects()

    def on_shutdown(self, where: Place, now: float) -> Effects:
        """The pool closes: nobody is served any more; what is leased may be given back in peace."""
        state = self._state
        if state.closed_at is None:
            state.closed_at = where
            for request in state.queue:
                serving.refuse(state, request, explain.pool_closed(state))
            for copy in state.residents:
                if copy.state is CopyState.OPENING or copy.is_idle:
                    serving.leave(state, copy, "the pool was closed")
        return state.take_effects()

    def on_shutdown_timeout(self, now: float) -> Effects:
        """Leases were not given back in time: they expire, and their copies close."""
        state = self._state
        for copy in state.residents:
            if copy.is_leased:
                state.out.extend(Expire(ticket, copy.id) for ticket in copy.leased_since)
                serving.end_leases(state, copy)
                serving.leave(state, copy, "the pool was closed")
        return state.take_effects()
