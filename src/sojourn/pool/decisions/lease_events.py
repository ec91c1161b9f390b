"""The events of leases: requested, offered, accepted, cancelled, given back.

A waiter is answered once: by a Grant that it accepts, a Warmed, or a Refuse. One that leaves
calls `on_cancel` and gets no answer. Events of a lease that has ended are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence

from sojourn.errors import InternalError
from sojourn.pool.decisions import explain, serving
from sojourn.pool.decisions.effects import Effects, Grant, Refuse
from sojourn.pool.decisions.state import PoolState
from sojourn.pool.decisions.terms import CopyId, Holder, Request


class LeaseEvents:
    """The decisions about requests for copies and about the holders of copies."""

    _state: PoolState

    def on_request(self, request: Request) -> Effects:
        """A lease is requested. If it can be granted now, the Grant is among the effects."""
        state = self._state
        if state.closed_at is not None:
            return (Refuse(request.ticket, explain.pool_closed(state)),)
        entry = state.models.find(request.model, request.version)
        if entry is None:
            error = explain.unknown_model(state, request.model, request.version)
            return (Refuse(request.ticket, error),)
        copy_id = self.take_warm(request) if request.warm_slot is None else None
        if copy_id is not None:
            return (Grant(request.ticket, copy_id), *state.take_effects())
        state.queue.add(request._replace(model=entry.key))
        serving.note_comeback(state, entry)
        serving.dispatch(state, request.at)
        return state.take_effects()

    def take_warm(self, request: Request) -> CopyId | None:
        """Grant an open copy at once, if there is one and no request waits before this one.

        This is the fast path of most leases: `on_request` without the Grant. If it opens
        another copy of a busy model, `take_effects` returns that effect.
        """
        state = self._state
        entry = state.models.find(request.model, request.version)
        if entry is None or state.closed_at is not None:
            return None
        if state.queue and state.queue.has_waiters_for(entry.key):
            return None
        if request.model != entry.key:
            request = request._replace(model=entry.key)
        copy = serving.free_copy(state, request)
        if copy is None:
            return None
        state.counters.hits += 1
        serving.grant(state, request, copy, request.at)
        serving.scale_out_if_busy(state, copy, request.at)
        return copy.id

    def door(self, model: str, version: int | None = None) -> CopyId | None:
        """Return the copy that, until the next event, every request for this model gets, or the
        next one if the copy is exclusive; None if that depends on the request. Leases taken that
        way are reported by `enter` before the next event."""
        state = self._state
        entry = state.models.find(model, version)
        if entry is None or state.closed_at is not None or state.queue.has_waiters_for(entry.key):
            return None
        rules = entry.model
        if rules.copies > 1 or rules.max_runs is not None:
            return None
        copy = state.residents.least_loaded(entry.key)
        return None if copy is None else copy.id

    def enter(
        self,
        copy_id: CopyId,
        inside: Sequence[Request],
        left: int,
        *,
        runs: int = 0,
        changed: bool = False,
        last_used: float = 0.0,
    ) -> None:
        """Record the leases taken at a door: those still held, and the number of ended ones."""
        state = self._state
        copy = state.residents.current(copy_id)
        if copy is None:
            raise InternalError(f"{copy_id} is gone and has an open door")
        state.counters.hits += left + len(inside)
        state.counters.grants += left
        entry = state.models[copy_id.model]
        entry.waits.counts[0] += left
        for request in inside:
            serving.grant(state, request, copy, request.at)
            self.on_accepted(request.ticket)
        copy.runs += runs
        copy.changed = copy.changed or changed
        copy.last_used = max(copy.last_used, last_used)
        if runs:
            entry.crashes.forgive()

    def take_effects(self) -> Effects:
        """Return the other effects of `take_warm`."""
        return self._state.take_effects() if self._state.out else ()

    def on_accepted(self, ticket: int) -> bool:
        """The waiter accepts its offer. Returns False if the copy is gone and it must wait on."""
        lease = self._state.leases.get(ticket)
        if lease is None:
            return False
        lease.is_accepted = True
        return True

    def on_cancel(self, ticket: int, now: float) -> Effects:
        """A waiter has left. Its offered copy goes to the next waiter."""
        if self._state.queue.remove(ticket) is None:
            return self.on_returned(ticket, now)
        serving.dispatch(self._state, now)  # its claim may have blocked others
        return self._state.take_effects()

    def on_timeout(self, ticket: int, now: float) -> Effects:
        """A waiter's timeout has expired. If it was offered a copy meanwhile, nothing happens, and
        it may still accept."""
        state = self._state
        request = state.queue.get(ticket)
        if request is None:
            return ()
        serving.refuse(state, request, explain.timed_out(state, request, now))
        serving.dispatch(state, now)
        return state.take_effects()

    def on_returned(
        self, ticket: int, now: float, *, runs: int = 0, changed: bool = False
    ) -> Effects:
        """A lease was given back, after this number of runs."""
        state = self._state
        lease = state.leases.remove(ticket)
        copy = state.residents.current(lease.copy) if lease is not None else None
        if lease is None or copy is None:
            return ()
        del copy.leased_since[ticket]
        if lease.is_accepted:
            copy.last_used = now
            copy.runs += runs
            copy.changed = copy.changed or changed
            if runs:
                state.models[copy.id.model].crashes.forgive()
            if copy.model.max_runs is not None and copy.runs >= copy.model.max_runs:
                copy.retiring = copy.retiring or f"{copy.runs} runs"
            if copy.overrun_readings and copy.is_idle:
                copy.retiring = copy.retiring or "it had outgrown the pool"
        if state.queue or copy.is_draining or state.is_over_limit or state.closed_at is not None:
            serving.dispatch(state, now)
        if copy.is_idle:
            state.watch_idle(copy)
        return state.take_effects()

    def on_moved(self, ticket: int, holder: Holder) -> None:
        """A lease is now used by another thread or task than the one that took it."""
        self._state.leases.move(ticket, holder)
