"""Events in, effects out: the pool's decisions. No threads, no clocks, no I/O.

One writer calls the `on_*` methods, one at a time, and performs the effects they return, in order.
The events of leases are in lease_events.py, those of copies in copy_events.py; here are the
models, the questions, and the events of timers and of the pool's owner.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Any

from sojourn.pool.decisions import explain, serving, sparing
from sojourn.pool.decisions.catalogue import Entry
from sojourn.pool.decisions.copy_events import CopyEvents
from sojourn.pool.decisions.effects import Effects, EndSpare, Expire, Report
from sojourn.pool.decisions.lease_events import LeaseEvents
from sojourn.pool.decisions.residents import CopyState
from sojourn.pool.decisions.spares import SpareState
from sojourn.pool.decisions.state import PoolState
from sojourn.pool.decisions.status import Counters, PoolStatus, take_status
from sojourn.pool.decisions.terms import CopyId, Holder, Model, Policy
from sojourn.values import Place, format_seconds


class Scheduler(LeaseEvents, CopyEvents):
    """The decisions of one pool."""

    def __init__(self, policy: Policy) -> None:
        self._state = PoolState(policy)

    # -- models -------------------------------------------------------------------------------

    def register(self, model: Model, source: object = None, *, is_coming: bool = False) -> None:
        """Register a version. One whose declared size can never fit is refused now.

        With `is_coming` it can be preloaded, and leased by its version, but leases by name get
        the version before it until `on_update`.
        """
        state = self._state
        error = explain.declared_too_large(Entry(model), state.policy.limit)
        if error is not None:
            raise error
        if state.models.get(model.key) is None:
            state.residents.register(model)
        state.models.add(model, source, is_coming=is_coming)

    def on_update(self, key: str, now: float, *, keeps_old: bool = False) -> Effects:
        """A new version is ready. Leases by name get it from now on; unless `keeps_old`, the older
        versions are removed when their leases have been given back. If a newer version serves
        already, this raises ModelError, unless `keeps_old`."""
        state = self._state
        entry = state.models[key]
        latest = state.models.find(entry.model.name)
        if latest is not None and latest.model.version > entry.model.version and not keeps_old:
            raise explain.overtaken(entry, latest)
        known = state.models.versions(entry.model.name)
        older = [e for e in known if e.model.version < entry.model.version]
        state.models.arrive(entry)
        state.counters.updates += 1
        replaced = [e.model.version for e in older if not keeps_old and not e.is_coming]
        facts = {"version": entry.model.version, "replaces": replaced}
        state.out.append(Report("pool.updated", entry.model.name, facts))
        for request in state.queue:
            if request.version is None and request.warm_slot is None:
                asked = state.models[request.model].model.name
                if asked == entry.model.name and state.models.is_latest(entry):
                    state.queue.remove(request.ticket)
                    state.queue.add(request._replace(model=key))
        for old in older:
            if old.model.version in replaced:
                serving.retire(state, old, now, f"replaced by {key}")
        serving.dispatch(state, now)
        return state.take_effects()

    def on_give_up(self, keys: Iterable[str], now: float, why: str) -> Effects:
        """An update has failed: the versions that are not ready are removed."""
        coming = (self._state.models.get(key) for key in keys)
        return self.on_unregister(
            (e.key for e in coming if e is not None and e.is_coming), now, why
        )

    def on_unregister(self, keys: Iterable[str], now: float, why: str) -> Effects:
        """Unregister versions: they cannot be leased any more. Requests that wait for them get the
        latest remaining version if they named none, and are refused otherwise."""
        state = self._state
        for key in keys:
            entry = state.models.get(key)
            if entry is not None and not entry.is_going:
                facts = {"version": entry.model.version, "why": why}
                state.out.append(Report("pool.unregistered", entry.model.name, facts))
                serving.retire(state, entry, now, why)
        return state.take_effects()

    def on_change(self, key: str, now: float, **rules: Any) -> Effects:
        """Change the rules of a version, for its open copies as well."""
        state = self._state
        entry = state.models[key]
        entry.model = replace(entry.model, **rules)
        for copy in state.residents.of(key):
            copy.model = entry.model
            if copy.is_idle:
                state.watch_idle(copy)
        serving.dispatch(state, now)
        return state.take_effects()

    # -- questions ----------------------------------------------------------------------------

    def find(self, name: str, version: int | None = None) -> Model | None:
        """Return the requested version, or the latest; None if it does not exist."""
        entry = self._state.models.find(name, version)
        return None if entry is None else entry.model

    def known(self, name: str, version: int | None = None) -> Model:
        """Like `find`, but raises ModelError if the version does not exist."""
        model = self.find(name, version)
        if model is None:
            raise explain.unknown_model(self._state, name, version)
        return model

    def registration(self, name: str, version: int | None = None) -> int | None:
        """Return the number of a version's registration; None if the version does not exist."""
        entry = self._state.models.find(name, version)
        return None if entry is None else entry.number

    def versions(self, name: str) -> list[Model]:
        """Return the versions of a model that can be leased, the oldest first."""
        return [entry.model for entry in self._state.models.versions(name)]

    def free_version(self, name: str) -> int:
        """Return a version number above all existing ones."""
        return self._state.models.free_version(name)

    @property
    def is_empty(self) -> bool:
        """Whether no copy and no spare worker is left, and no request waits."""
        state = self._state
        return not state.queue and not state.spares.live and not any(True for _ in state.residents)

    @property
    def charged_bytes(self) -> int:
        return self._state.budget.charged_bytes

    @property
    def counters(self) -> Counters:
        return self._state.counters

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the models that can be leased."""
        return self._state.models.names

    @property
    def is_leased(self) -> bool:
        return len(self._state.leases) > 0

    def holder(self, ticket: int) -> Holder | None:
        lease = self._state.leases.get(ticket)
        return None if lease is None else lease.holder

    def held_by(self, key: Hashable) -> list[tuple[int, CopyId]]:
        """Return the leases of a thread or task: ticket and copy."""
        leases = self._state.leases
        return [(held.request.ticket, held.copy) for held in leases if held.holder.key == key]

    def leaving(self, keys: Iterable[str]) -> set[CopyId]:
        """Return the copies of these models that are being parked or closed."""
        return {c.id for c in self._state.residents if c.is_leaving and c.id.model in keys}

    def has_stayed(self, copy_id: CopyId) -> bool:
        """Whether a copy that was being parked has stayed after all."""
        copy = self._state.residents.current(copy_id)
        return copy is not None and not copy.is_leaving

    def status(self, now: float | None = None) -> PoolStatus:
        """Return the status of the pool; `now` is needed to include the waits."""
        taken = take_status(self._state)
        return taken if now is None else replace(taken, waits=explain.waits(self._state, now))

    def __repr__(self) -> str:
        return str(self.status())

    # -- spare workers ------------------------------------------------------------------------

    def on_spare_ready(self, number: int, held_bytes: int, now: float) -> Effects:
        """A spare worker was made; `held_bytes` is its measured size."""
        state = self._state
        spare = state.spares.live[number]
        if spare.state is SpareState.ENDING:  # it was given up while it was being made
            return (EndSpare(number),)
        spare.state = SpareState.READY
        state.spares.expected_bytes = held_bytes
        state.budget.charge(spare.account, held_bytes)
        serving.dispatch(state, now)
        return state.take_effects()

    def on_spare_gone(self, number: int, now: float, why: str = "") -> Effects:
        """A spare worker has ended, or could not be made: its charge is free."""
        state = self._state
        spare = state.spares.live.get(number)
        if spare is None:
            return ()  # a copy has taken it
        if spare.state is not SpareState.ENDING:
            state.counters.spares_lost += 1
            state.spares.crashes.record(why, now)
        state.spares.forget(spare, state.budget)
        serving.dispatch(state, now)
        return state.take_effects()

    # -- timers and the owner -----------------------------------------------------------------

    def on_timer(self, now: float) -> Effects:
        """The timer has expired. May be called at any other time, too."""
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
        """Close the copies of a model: idle ones now, leased ones when they are given back. A copy
        that a request waits for is opened nevertheless."""
        state = self._state
        for copy in state.residents.of(model):
            is_wanted = copy.state is CopyState.OPENING and state.queue.has_waiters_for(model)
            if not copy.is_leaving and not is_wanted:
                copy.retiring = copy.retiring or "evicted by request"
                copy.park_retry_at = 0.0
        serving.dispatch(state, now)
        return state.take_effects()

    def on_shutdown(self, where: Place, now: float) -> Effects:
        """Close the pool: no request is served any more; leases may still be given back."""
        state = self._state
        if state.closed_at is None:
            state.closed_at = where
            for request in state.queue:
                serving.refuse(state, request, explain.pool_closed(state))
            for copy in state.residents:
                serving.withdraw_offers(state, copy)
                if copy.state is CopyState.OPENING or copy.is_idle:
                    serving.leave(state, copy, "the pool was closed")
            sparing.give_up(state)
        return state.take_effects()

    def on_shutdown_timeout(self, now: float) -> Effects:
        """The closing timeout is over: remaining leases expire, and their copies are closed."""
        state = self._state
        for copy in state.residents:
            if copy.is_leased:
                state.out.extend(Expire(ticket, copy.id) for ticket in copy.leased_since)
                serving.end_leases(state, copy)
                serving.leave(state, copy, "the pool was closed")
        return state.take_effects()
