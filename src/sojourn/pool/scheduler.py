"""Events in, effects out: the pool's decisions. No threads, no clocks, no I/O.

One writer calls the `on_*` methods, one at a time, and performs what they return, in order.
Everything a lease goes through passes here: waiting, being offered, held, given back; and what
a copy goes through: reserved, opened, used, parked, closed.

Whoever waits is answered once: by a Grant that he accepts, a Warmed, or a Refuse. A waiter who
leaves says so with `on_cancel`, and needs no answer. Messages about a copy that is gone, or
about a lease that has ended, are ignored.
"""

from __future__ import annotations

import copy as copying
from collections.abc import Hashable, Sequence

from sojourn.errors import InternalError, SessionBroken
from sojourn.pool import explain, serving
from sojourn.pool.budget import never_fits
from sojourn.pool.effects import Close, Discard, Effects, Expire, Grant, Refuse, Report
from sojourn.pool.health import Crashes
from sojourn.pool.residents import Copy, CopyState
from sojourn.pool.state import State
from sojourn.pool.status import Counters, PoolStatus
from sojourn.pool.terms import NO_ROOM, CopyId, Holder, Model, Policy, Request
from sojourn.values import Place, format_bytes, format_seconds

PARK_RETRY_SECONDS = 10.0


class Scheduler:
    """The decisions of one pool."""

    def __init__(self, policy: Policy) -> None:
        self._state = State(policy)

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

    def status(self) -> PoolStatus:
        return self._state.status()

    def __repr__(self) -> str:
        return str(self.status())

    # -- waiters ------------------------------------------------------------------------------

    def on_request(self, request: Request) -> Effects:
        """Somebody wants a lease. If one can be had now, the Grant is among the effects."""
        state = self._state
        model = state.models.get(request.model)
        if state.closed_at is not None:
            return (Refuse(request.ticket, explain.pool_closed(state)),)
        if model is None:
            return (Refuse(request.ticket, explain.unknown_model(state, request.model)),)
        copy_id = self.take_warm(request) if request.warm_slot is None else None
        if copy_id is not None:
            return (Grant(request.ticket, copy_id), *state.take_effects())
        state.queue.add(request)
        serving.note_comeback(state, request.model)
        serving.dispatch(state, request.at)
        return state.take_effects()

    def take_warm(self, request: Request) -> CopyId | None:
        """The copy that is granted at once, if nobody is ahead and one is there.

        It is the short way that most leases go: `on_request` without the Grant. Where it opens
        another copy of a busy model, `take_effects` has that.
        """
        state = self._state
        if request.model not in state.models or state.closed_at is not None:
            return None
        if state.queue and state.queue.has_waiters_for(request.model):
            return None
        copy = serving.free_copy(state, request)
        if copy is None:
            return None
        state.counters.hits += 1
        serving.grant(state, request, copy, request.at)
        if copy.model.copies > 1:
            self._scale_out_if_busy(copy, request.at)
        return copy.id

    def door(self, model: str) -> CopyId | None:
        """The copy that everybody who asks for this model gets, until the next event; None if
        that depends on who asks. Whoever gets it without asking is to be entered before then."""
        state = self._state
        rules = state.models.get(model)
        if rules is None or rules.exclusive or rules.copies > 1 or rules.max_runs is not None:
            return None
        if state.closed_at is not None or state.queue.has_waiters_for(model):
            return None
        copy = state.residents.least_loaded(model)
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
        """Enter those who came by the door: who is still inside, and how many have left."""
        state = self._state
        copy = state.residents.current(copy_id)
        if copy is None:
            raise InternalError(f"{copy_id} is gone and has an open door")
        state.counters.hits += left + len(inside)
        state.counters.grants += left
        for request in inside:
            serving.grant(state, request, copy, request.at)
            self.on_accepted(request.ticket)
        copy.runs += runs
        copy.changed = copy.changed or changed
        copy.last_used = max(copy.last_used, last_used)
        if runs:
            state.crashes[copy.model.name].forgive()

    def take_effects(self) -> Effects:
        """What `take_warm` wants done beside."""
        return self._state.take_effects() if self._state.out else ()

    def on_accepted(self, ticket: int) -> bool:
        """The waiter takes what he was offered. False: it is gone, and he waits on."""
        lease = self._state.leases.get(ticket)
        if lease is None:
            return False
        lease.is_accepted = True
        return True

    def on_cancel(self, ticket: int, now: float) -> Effects:
        """A waiter has left. What he was offered goes to the next."""
        if self._state.queue.remove(ticket) is None:
            return self.on_returned(ticket, now)
        serving.dispatch(self._state, now)  # a claim of his may have held others up
        return self._state.take_effects()

    def on_timeout(self, ticket: int, now: float) -> Effects:
        """A waiter's time is up. If he was offered a copy meanwhile, nothing happens, and he
        may still take it."""
        state = self._state
        request = state.queue.get(ticket)
        if request is None:
            return ()
        serving.refuse(state, request, explain.timed_out(state, request, now))
        serving.dispatch(state, now)
        return state.take_effects()

    def on_returned(
        self,
        ticket: int,
        now: float,
        *,
        runs: int = 0,
        changed: bool = False,
        held_bytes: int | None = None,
    ) -> Effects:
        """A lease was given back, after so many runs; `held_bytes` if it was measured."""
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
                state.crashes[copy.model.name].forgive()
            if copy.model.max_runs is not None and copy.runs >= copy.model.max_runs:
                copy.retiring = copy.retiring or f"{copy.runs} runs"
            if held_bytes is not None:
                self._judge_size(copy, held_bytes)
        if state.queue or copy.is_draining or state.is_over_limit or state.closed_at is not None:
            serving.dispatch(state, now)
        if copy.is_idle:
            state.watch_idle(copy)
        return state.take_effects()

    def on_moved(self, ticket: int, holder: Holder) -> None:
        """A lease is used by another thread or task than the one that took it."""
        self._state.leases.move(ticket, holder)

    # -- copies -------------------------------------------------------------------------------

    def on_opened(self, copy_id: CopyId, held_bytes: int, seconds: float, now: float) -> Effects:
        """An open has ended well; `held_bytes` was measured."""
        state = self._state
        copy = state.residents.current(copy_id)
        if copy is None or copy.state is not CopyState.OPENING:
            return ()
        copy.move("opened")
        copy.opened_at = copy.last_used = now
        copy.open_seconds = seconds
        self._charge(copy, held_bytes)
        if state.is_overrun_by(copy, now):
            # It is larger than anybody knew. Nobody uses it yet, so that it goes again, and
            # those who wait for it are judged by the true size.
            state.out.append(Report("pool.overrun", copy_id.model, {"held_bytes": held_bytes}))
            serving.leave(state, copy, f"holds {format_bytes(held_bytes)}: more than was reserved")
        serving.dispatch(state, now)
        self._scale_out_if_busy(copy, now)
        if copy.is_idle:
            state.watch_idle(copy)
        return state.take_effects()

    def on_open_failed(
        self, copy_id: CopyId, error: Exception, now: float, *, residue_bytes: int = 0
    ) -> Effects:
        """An open has failed, and its worker, if there was one, has been reaped."""
        state = self._state
        copy = state.residents.current(copy_id)
        if copy is None:
            return ()
        self._forget(copy, residue_bytes)
        if isinstance(error, SessionBroken):
            state.counters.deaths += 1
            state.crashes[copy_id.model].record(str(error), now)
        else:  # trying again would fail again
            for request in state.queue:
                if request.model == copy_id.model:
                    serving.refuse(state, request, _own(error))
        serving.dispatch(state, now)
        return state.take_effects()

    def on_died(self, copy_id: CopyId, last_words: str, now: float) -> Effects:
        """A worker died by itself. Its holders learn it from the session; it is charged until
        the receipt is in."""
        state = self._state
        copy = state.residents.current(copy_id)
        if copy is None or copy.state is CopyState.CLOSING:
            return ()
        state.counters.deaths += 1
        state.crashes[copy_id.model].record(last_words, now)
        if copy.changed:
            state.out.append(Report("pool.state_lost", copy_id.model, {"copy": str(copy_id)}))
        serving.end_leases(state, copy)
        copy.move("died")
        state.out.append(Close(copy_id, "died"))
        serving.dispatch(state, now)
        return state.take_effects()

    def on_parked(self, copy_id: CopyId, parked: object, seconds: float, now: float) -> Effects:
        """The variables are durable. The copy can go."""
        state = self._state
        copy = state.residents.current(copy_id)
        if copy is None or copy.state is not CopyState.PARKING:
            return (Discard(parked),)
        slot = state.residents.slot(copy_id)
        if slot.ever_parked:
            state.out.append(Discard(slot.parked))
        slot.parked, slot.ever_parked = parked, True
        copy.changed = False
        copy.park_seconds = seconds
        state.counters.parks += 1
        copy.move("parked")
        state.out.append(Close(copy_id, copy.retiring or "parked"))
        return state.take_effects()

    def on_park_failed(self, copy_id: CopyId, error: Exception, now: float) -> Effects:
        """Saving failed: the copy stays, with everything it has, and may be leased again."""
        state = self._state
        copy = state.residents.current(copy_id)
        if copy is None or copy.state is not CopyState.PARKING:
            return ()
        copy.move("park failed")
        copy.retiring = ""
        copy.claimed = False
        copy.park_retry_at = now + PARK_RETRY_SECONDS
        copy.park_error = str(error)
        state.out.append(Report("pool.park_failed", copy_id.model, {"error": str(error)}))
        serving.dispatch(state, now)
        if copy.is_idle:
            state.watch_idle(copy)
        return state.take_effects()

    def on_closed(
        self,
        copy_id: CopyId,
        now: float,
        *,
        residue_bytes: int = 0,
        held_bytes: int | None = None,
    ) -> Effects:
        """The receipt is in. What it says was left behind stays charged; a later receipt for
        the same copy corrects that."""
        state = self._state
        copy = state.residents.current(copy_id)
        if copy is not None:
            if held_bytes is not None:
                state.footprints.learn(copy_id.model, held_bytes)
            serving.end_leases(state, copy)
            self._forget(copy, residue_bytes)
        elif copy_id in state.budget.residue:
            state.budget.release(copy_id, residue_bytes)
        else:
            return ()
        serving.dispatch(state, now)
        return state.take_effects()

    def on_measured(self, copy_id: CopyId, held_bytes: int, now: float) -> Effects:
        """A resident was measured, between leases or during one."""
        state = self._state
        copy = state.residents.current(copy_id)
        if copy is None or copy.state is not CopyState.READY:
            return ()
        self._judge_size(copy, held_bytes)
        serving.dispatch(state, now)
        return state.take_effects()

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

    # -- steps --------------------------------------------------------------------------------

    def _scale_out_if_busy(self, copy: Copy, now: float) -> None:
        if copy.model.copies > 1 and len(copy.leased_since) > 1:
            serving.scale_out(self._state, copy.model.name, now)

    def _forget(self, copy: Copy, residue_bytes: int) -> None:
        self._state.budget.release(copy.id, residue_bytes)
        self._state.residents.end(copy)

    def _charge(self, copy: Copy, held_bytes: int) -> None:
        """Charge what was measured, but not less than what the model is known to grow to."""
        footprints = self._state.footprints
        known = footprints.get(copy.model.name)
        if known is None or held_bytes > known:
            footprints.learn(copy.model.name, held_bytes)
        self._state.budget.remeasure(copy.id, footprints.expect(copy.model))

    def _judge_size(self, copy: Copy, held_bytes: int) -> None:
        self._charge(copy, held_bytes)
        copy.growth.record(held_bytes, copy.model.max_growth_bytes)
        if copy.growth.is_proven and not copy.retiring:
            copy.retiring = f"grew by {format_bytes(copy.growth.grown_bytes)}"


def _own(error: Exception) -> Exception:
    """An instance for one waiter: raised in several threads, one would collect their tracebacks."""
    try:
        mine = copying.copy(error)
    except Exception:
        return error
    mine.__cause__ = error.__cause__
    return mine
