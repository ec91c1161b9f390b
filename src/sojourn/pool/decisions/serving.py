"""Serve every request that can be served: first from open copies, then by making room for others.

The steps that change the state, between the events (scheduler.py) and the arithmetic
(planning.py, eviction.py, deadlock.py). They collect effects and perform none of them.
"""

from __future__ import annotations

from sojourn.errors import InternalError
from sojourn.pool.decisions import explain, sparing
from sojourn.pool.decisions.catalogue import Entry
from sojourn.pool.decisions.deadlock import find_deadlock
from sojourn.pool.decisions.effects import (
    Close,
    Discard,
    Grant,
    Open,
    Park,
    Refuse,
    Report,
    Warmed,
)
from sojourn.pool.decisions.planning import Claim, Demand, plan_room
from sojourn.pool.decisions.queue import GrantedLease
from sojourn.pool.decisions.residents import Copy, CopyState, Slot
from sojourn.pool.decisions.state import PoolState
from sojourn.pool.decisions.terms import Request, Room

_COMEBACK_LIMIT = 3.0
_COMEBACK_DECAY = 0.9


def dispatch(state: PoolState, now: float) -> None:
    """Answer every request that can be answered after a change of the state."""
    if state.closed_at is not None:
        for copy in state.residents:
            if copy.is_idle:
                leave(state, copy, "the pool was closed")
        sparing.give_up(state)
        return
    drop_stale_claim(state)
    for copy in state.residents:
        if copy.is_idle and copy.is_draining:
            if now < copy.park_retry_at:  # it cannot be parked now: rather use it
                copy.retiring = ""
                copy.claimed = False
            elif copy.retiring:
                state.counters.recycled += 1
                leave(state, copy, copy.retiring)
            else:
                evict(state, copy)
    if state.queue:
        serve_warm(state, now)
        drop_stale_claim(state)
    if state.queue or state.is_over_limit:
        claimed = state.claim.victims if state.claim is not None else frozenset()
        make_room(state, now)
        if claimed - (state.claim.victims if state.claim is not None else frozenset()):
            serve_warm(state, now)  # copies no longer claimed can be leased again
        if break_deadlock(state):
            dispatch(state, now)  # room may have been kept for the refused request
    sparing.make(state, now)


# -- warm ---------------------------------------------------------------------------------------


def free_copy(state: PoolState, request: Request) -> Copy | None:
    """Return the copy for this request, or None. A holder of a lease may even get a draining copy:
    if it waited for that copy to leave, the copy's holders might wait for it."""
    copy = state.residents.least_loaded(request.model)
    if copy is None and state.leases.is_holding(request.holder):
        copy = state.residents.least_loaded(request.model, even_draining=True)
    return copy


def grant(state: PoolState, request: Request, copy: Copy, now: float) -> None:
    state.leases.add(GrantedLease(request, copy.id, now))
    copy.leased_since[request.ticket] = now
    state.counters.grants += 1
    state.models[copy.id.model].waits.add(max(0.0, now - request.at))


def refuse(state: PoolState, request: Request, error: Exception) -> None:
    state.queue.remove(request.ticket)
    state.counters.refusals += 1
    state.out.append(Refuse(request.ticket, error))


def serve_warm(state: PoolState, now: float) -> None:
    for request in state.queue:
        if request.warm_slot is not None:
            warm = state.residents.slots(request.model)[request.warm_slot].copy
            if warm is not None and warm.state is CopyState.READY:
                state.queue.remove(request.ticket)
                state.out.append(Warmed(request.ticket, warm.id))
            continue
        copy = free_copy(state, request)
        if copy is not None:
            state.queue.remove(request.ticket)
            grant(state, request, copy, now)
            state.out.append(Grant(request.ticket, copy.id))


def scale_out_if_busy(state: PoolState, copy: Copy, now: float) -> None:
    """Open another copy of a shared model if all its copies are busy and there is spare room.
    Nothing is evicted for it, since no request waits for it."""
    model, key = copy.model, copy.id.model
    if model.copies == 1 or len(copy.leased_since) < 2:
        return
    entry = state.models[key]
    slot = state.residents.empty_slot(key)
    if slot is None or model.exclusive or state.queue or entry.crashes.count or entry.is_going:
        return
    is_busy = all(copy.is_leased for copy in state.residents.of(key))
    if is_busy and state.budget.spare.covers(state.need(entry)):
        open_copy(state, slot, now)


# -- cold ---------------------------------------------------------------------------------------


def make_room(state: PoolState, now: float) -> None:
    demands = find_demands(state, now)
    sparing.give_up_surplus(state, [demand for demand, _ in demands.values()])
    plan = plan_room(
        [demand for demand, _ in demands.values()],
        state.budget.spare,
        state.leaving_room(),
        state.idle_candidates(now),
        state.busy_candidates(),
        now,
        state.policy,
        state.claim,
        sum(c.is_leaving or c.state is CopyState.OPENING for c in state.residents),
    )
    for copy_id in plan.evictions:
        victim = state.residents.current(copy_id)
        if victim is None:
            raise InternalError(f"{copy_id} was chosen to leave and is gone")
        evict(state, victim)
    for ticket in plan.opens:
        open_copy(state, demands[ticket][1], now)
    set_claim(state, plan.claim)
    if plan.evictions and state.spares.ready():
        make_room(state, now)  # an opening with a spare need not wait for their end
    if plan.wake_at is not None:
        state.wake(plan.wake_at)
    for copy in state.residents:
        if copy.is_idle and copy.park_retry_at > now:
            state.wake(copy.park_retry_at)


def find_demands(state: PoolState, now: float) -> dict[int, tuple[Demand, Slot]]:
    """Return the waiters that need a copy opened, in order, each with the slot for the copy."""
    demands: dict[int, tuple[Demand, Slot]] = {}
    empty: dict[str, set[int]] = {}
    coming: dict[str, int] = {}
    spares = len(state.spares.ready())
    closing = len(sparing.closing_sessions(state))
    # A waiter without a lease inherits the urgency of a holder behind it in the model's queue.
    urgent = {r.model for r in state.queue if state.leases.is_holding(r.holder)}
    for request in state.queue:
        key = request.model
        entry = state.models[key]
        if key not in empty:
            empty[key] = {slot.index for slot in state.residents.slots(key) if slot.copy is None}
            copies = state.residents.of(key)
            coming[key] = sum(copy.state is CopyState.OPENING for copy in copies)
        if request.warm_slot is None and coming[key] > 0:
            coming[key] -= entry.model.exclusive  # a shared copy serves all its waiters
            continue
        allowed = empty[key]
        if request.warm_slot is not None:
            allowed = allowed & {request.warm_slot}
        slot = state.residents.empty_slot(key, allowed)
        if slot is None or _is_put_off(state, request, entry, now):
            continue
        need = state.need(entry)
        if spares and sparing.is_for(state, entry.model):  # the spare brings its own room
            spares -= 1
            is_replacing = closing > 0
            closing -= is_replacing
            brought = Room(state.spares.least_bytes(state.budget), int(is_replacing))
            need = need.minus(brought).at_least_nothing()
        demands[request.ticket] = (
            Demand(request.ticket, key, need, request.at, is_urgent=key in urgent),
            slot,
        )
        empty[key].discard(slot.index)
        if not entry.model.exclusive:
            coming[key] = 1
    return demands


def _is_put_off(state: PoolState, request: Request, entry: Entry, now: float) -> bool:
    """Whether to open no copy for this request now; refuses the request if waiting is useless."""
    crashes = entry.crashes
    if crashes.must_wait(now) and not crashes.is_hopeless(now):
        state.wake(crashes.retry_at)
        return True
    is_preload = request.warm_slot is not None
    copies = [copy for copy in state.residents.of(entry.key) if not copy.is_leaving]
    if is_preload and entry.is_guess and any(c.state is CopyState.OPENING for c in copies):
        return True  # its size will be known soon
    error: Exception | None = None
    if crashes.is_hopeless(now):
        error = crashes.error(entry.key, now)
    elif entry.oversize.must_wait(now):
        error = explain.measured_too_large(state, entry, now)
    elif is_preload or not copies:  # else an open copy may become free
        error = explain.waiting_cannot_help(state, entry, now, with_siblings=is_preload)
    if error is not None:
        refuse(state, request, error)
    return error is not None


def open_copy(state: PoolState, slot: Slot, now: float) -> None:
    entry = state.models[slot.model]
    copy = state.residents.begin(slot, entry.model, now, state.least_used_device())
    copy.reserved_bytes = state.need(entry).bytes
    spare = sparing.take(state) if sparing.is_for(state, entry.model) else None
    if spare is not None and state.budget.spare.sessions < 1:
        state.budget.replace_session(sparing.closing_sessions(state)[0])
    state.budget.reserve(copy.id, copy.reserved_bytes)
    state.counters.opens += 1
    known = entry.fresh_bytes if slot.parked is None else None
    state.out.append(
        Open(copy.id, copy.reserved_bytes, slot.parked, copy.device, entry.source, spare, known)
    )


# -- leaving ------------------------------------------------------------------------------------


def evict(state: PoolState, copy: Copy) -> None:
    state.counters.evictions += 1
    state.models[copy.id.model].evicted_as = state.counters.evictions
    leave(state, copy, "evicted")


def leave(state: PoolState, copy: Copy, why: str) -> None:
    """Close a copy, and park it before if its variables have changed."""
    is_wanted = state.closed_at is None and not state.models[copy.id.model].is_going
    loses = copy.changed and copy.state is CopyState.READY and is_wanted
    if loses and copy.model.parks:
        copy.move("park")
        state.out.append(Park(copy.id))
        return
    if loses:
        state.out.append(Report("pool.state_lost", copy.id.model, {"copy": str(copy.id)}))
    copy.move("leave")
    state.out.append(Close(copy.id, why))


def end_leases(state: PoolState, copy: Copy) -> None:
    """Remove all leases of a copy that is gone."""
    withdraw_offers(state, copy)
    for ticket in copy.leased_since:
        state.leases.remove(ticket)
    copy.leased_since.clear()


def withdraw_offers(state: PoolState, copy: Copy) -> None:
    """Turn offers of a copy that were not accepted yet into waits again, in their old place."""
    for ticket in tuple(copy.leased_since):
        lease = state.leases.get(ticket)
        if lease is not None and not lease.is_accepted:
            state.leases.remove(ticket)
            del copy.leased_since[ticket]
            state.counters.grants -= 1
            wait_again(state, lease.request)


def wait_again(state: PoolState, request: Request) -> None:
    """Return a request to the queue, for the latest version if it named none and its version is
    gone; refuse it if that is impossible."""
    entry = state.models[request.model]
    if state.closed_at is not None:
        refuse(state, request, explain.pool_closed(state))
        return
    if not entry.is_going:
        state.queue.add(request)
        return
    latest = None if request.version is not None else state.models.find(entry.model.name)
    if latest is None or request.warm_slot is not None:
        refuse(state, request, explain.unregistered(entry))
    else:
        state.queue.add(request._replace(model=latest.key))


def retire(state: PoolState, entry: Entry, now: float, why: str) -> None:
    """Unregister a version: its idle copies are closed now, leased ones when they are given back;
    waiting requests go to its successor if there is one."""
    state.models.retire(entry)
    for copy in state.residents.of(entry.key):
        copy.retiring = why
        copy.park_retry_at = 0.0
        if copy.state is CopyState.OPENING:
            leave(state, copy, why)
    for request in state.queue:
        if request.model == entry.key:
            state.queue.remove(request.ticket)
            wait_again(state, request)
    forget_if_gone(state, entry)
    dispatch(state, now)


def forget_if_gone(state: PoolState, entry: Entry) -> None:
    """Remove the record and the parked states of an unregistered version without copies."""
    if not entry.is_going or next(state.residents.of(entry.key), None) is not None:
        return
    state.models.forget(entry)
    for slot in state.residents.forget(entry.key):
        if slot.ever_parked:
            state.out.append(Discard(slot.parked))


def set_claim(state: PoolState, claim: Claim | None) -> None:
    before = state.claim.victims if state.claim is not None else frozenset()
    after = claim.victims if claim is not None else frozenset()
    state.claim = claim
    for copy_id in before | after:
        copy = state.residents.current(copy_id)
        if copy is not None:
            copy.claimed = copy_id in after


def drop_stale_claim(state: PoolState) -> None:
    if state.claim is not None and state.claim.ticket not in state.queue:
        set_claim(state, None)


def note_comeback(state: PoolState, entry: Entry) -> None:
    """Count it as a mistake if a model is requested that was evicted so recently that the other
    copies of that time are still open."""
    gone_as, entry.evicted_as = entry.evicted_as, None
    if gone_as is None:
        return
    if state.counters.evictions - gone_as <= len(list(state.residents)):
        for other in state.models:
            other.comebacks *= _COMEBACK_DECAY
        entry.comebacks = min(entry.comebacks + 1.0, _COMEBACK_LIMIT)


# -- deadlocks ----------------------------------------------------------------------------------


def break_deadlock(state: PoolState) -> bool:
    """Refuse one of the holders that wait for each other; return whether there were any. Only
    holders can be in a cycle."""
    if not any(state.leases.is_holding(request.holder) for request in state.queue):
        return False
    found = find_deadlock(state)
    if found is None:
        return False
    state.counters.deadlocks += 1
    refuse(state, *found)
    return True
