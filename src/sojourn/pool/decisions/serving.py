"""Serve whoever can be served: first what is warm, then room for what is cold.

The steps that change the state, between the events (scheduler.py) and the arithmetic
(planning.py, eviction.py, deadlock.py). They collect effects and perform nothing.
"""

from __future__ import annotations

from sojourn.errors import InternalError
from sojourn.pool.decisions import explain
from sojourn.pool.decisions.deadlock import find_deadlock
from sojourn.pool.decisions.effects import Close, Grant, Open, Park, Refuse, Report, Warmed
from sojourn.pool.decisions.planning import Claim, Demand, plan_room
from sojourn.pool.decisions.queue import Lease
from sojourn.pool.decisions.residents import Copy, CopyState, Slot
from sojourn.pool.decisions.state import PoolState
from sojourn.pool.decisions.terms import Request

_COMEBACK_LIMIT = 3.0
_COMEBACK_DECAY = 0.9


def dispatch(state: PoolState, now: float) -> None:
    """Something has changed: answer everybody who can be answered now."""
    if state.closed_at is not None:
        for copy in state.residents:
            if copy.is_idle:
                leave(state, copy, "the pool was closed")
        return
    drop_stale_claim(state)
    for copy in state.residents:
        if copy.is_idle and copy.is_draining:
            if now < copy.park_retry_at:  # it cannot be parked, so that it had better be used
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
            serve_warm(state, now)  # what is no longer claimed can be leased again
        if break_deadlock(state):
            dispatch(state, now)  # room may have been kept for the one who was told


# -- warm ---------------------------------------------------------------------------------------


def free_copy(state: PoolState, request: Request) -> Copy | None:
    """The copy for this request, if there is one. Whoever holds a lease may have one that drains:
    if he had to wait for it to leave, it might wait for him."""
    copy = state.residents.least_loaded(request.model)
    if copy is None and state.leases.is_holding(request.holder):
        copy = state.residents.least_loaded(request.model, even_draining=True)
    return copy


def grant(state: PoolState, request: Request, copy: Copy, now: float) -> None:
    state.leases.add(Lease(request, copy.id, now))
    copy.leased_since[request.ticket] = now
    state.counters.grants += 1


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
    """All copies of a shared model are busy: open another if there is room to spare. Nobody
    waits for it, so that nobody is evicted for it."""
    model, model_name = copy.model, copy.model.name
    if model.copies == 1 or len(copy.leased_since) < 2:
        return
    copies = list(state.residents.of(model_name))
    slot = state.residents.empty_slot(model_name)
    if slot is None or model.exclusive or state.queue or state.crashes[model_name].count:
        return
    if all(copy.is_leased for copy in copies) and state.budget.spare.covers(state.need(model)):
        open_copy(state, slot, now)


# -- cold ---------------------------------------------------------------------------------------


def make_room(state: PoolState, now: float) -> None:
    demands = find_demands(state, now)
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
    if plan.wake_at is not None:
        state.wake(plan.wake_at)
    for copy in state.residents:
        if copy.is_idle and copy.park_retry_at > now:
            state.wake(copy.park_retry_at)


def find_demands(state: PoolState, now: float) -> dict[int, tuple[Demand, Slot]]:
    """The waiters for whom a copy must be opened, in order, each with the slot for it."""
    demands: dict[int, tuple[Demand, Slot]] = {}
    empty: dict[str, set[int]] = {}
    coming: dict[str, int] = {}
    # One who holds nothing inherits the privilege of a holder that waits behind him.
    urgent = {r.model for r in state.queue if state.leases.is_holding(r.holder)}
    for request in state.queue:
        model = state.models[request.model]
        if model.name not in empty:
            slots = state.residents.slots(model.name)
            empty[model.name] = {slot.index for slot in slots if slot.copy is None}
            coming[model.name] = sum(
                copy.state is CopyState.OPENING for copy in state.residents.of(model.name)
            )
        if request.warm_slot is None and coming[model.name] > 0:
            coming[model.name] -= model.exclusive  # shared: one open serves them all
            continue
        allowed = empty[model.name]
        if request.warm_slot is not None:
            allowed = allowed & {request.warm_slot}
        slot = state.residents.empty_slot(model.name, allowed)
        if slot is None or _is_crashing(state, request, now) or _is_hopeless(state, request, now):
            continue
        is_urgent = model.name in urgent
        demand = Demand(request.ticket, model.name, state.need(model), request.at, is_urgent)
        demands[request.ticket] = (demand, slot)
        empty[model.name].discard(slot.index)
        if not model.exclusive:
            coming[model.name] = 1
    return demands


def _is_crashing(state: PoolState, request: Request, now: float) -> bool:
    """Whether it is too early to open this model again; tells the waiter if it is hopeless."""
    crashes = state.crashes[request.model]
    if not crashes.must_wait(now):
        return False
    if crashes.is_hopeless(now):
        refuse(state, request, crashes.error(request.model, now))
    else:
        state.wake(crashes.retry_at)
    return True


def _is_hopeless(state: PoolState, request: Request, now: float) -> bool:
    """Whether no waiting can make room for it. Where one copy is as good as another, waiting for
    one that is there can help; a preload wants all of them beside each other."""
    is_preload = request.warm_slot is not None
    if not is_preload and any(not copy.is_leaving for copy in state.residents.of(request.model)):
        return False
    model = state.models[request.model]
    error = explain.can_never_fit(state, model, now, with_siblings=is_preload)
    if error is None:
        return False
    refuse(state, request, error)
    return True


def open_copy(state: PoolState, slot: Slot, now: float) -> None:
    model = state.models[slot.model]
    copy = state.residents.begin(slot, model, now, state.least_used_device())
    reserve_bytes = state.footprints.expect(model)
    state.budget.reserve(copy.id, reserve_bytes)
    state.counters.opens += 1
    state.out.append(Open(copy.id, reserve_bytes, slot.parked, copy.device))


# -- leaving ------------------------------------------------------------------------------------


def evict(state: PoolState, copy: Copy) -> None:
    state.counters.evictions += 1
    state.evicted[copy.model.name] = state.counters.evictions
    leave(state, copy, "evicted")


def leave(state: PoolState, copy: Copy, why: str) -> None:
    """Let a copy go, by way of parking if its variables have changed."""
    loses = copy.changed and copy.state is CopyState.READY and state.closed_at is None
    if loses and copy.model.parks:
        copy.move("park")
        state.out.append(Park(copy.id))
        return
    if loses:
        state.out.append(Report("pool.state_lost", copy.model.name, {"copy": str(copy.id)}))
    copy.move("leave")
    state.out.append(Close(copy.id, why))


def end_leases(state: PoolState, copy: Copy) -> None:
    """The copy is gone. Offers that were not taken yet become waits again, in their old place."""
    for ticket in tuple(copy.leased_since):
        lease = state.leases.remove(ticket)
        if lease is not None and not lease.is_accepted and state.closed_at is None:
            state.counters.grants -= 1
            state.queue.add(lease.request)
    copy.leased_since.clear()


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


def note_comeback(state: PoolState, model: str) -> None:
    """Somebody wants what was evicted a moment ago, while the others that were resident then
    still are: evicting it was a mistake."""
    gone_then = state.evicted.pop(model, None)
    if gone_then is None:
        return
    residents = sum(1 for _ in state.residents)
    if state.counters.evictions - gone_then <= residents:
        for other in state.comebacks:
            state.comebacks[other] *= _COMEBACK_DECAY
        count = state.comebacks.get(model, 0.0) + 1.0
        state.comebacks[model] = min(count, _COMEBACK_LIMIT)


# -- deadlocks ----------------------------------------------------------------------------------


def break_deadlock(state: PoolState) -> bool:
    """One of the holders that wait for each other is told. Only holders can be in a cycle."""
    if not any(state.leases.is_holding(request.holder) for request in state.queue):
        return False
    found = find_deadlock(state.world())
    if found is None:
        return False
    request = next(r for r in state.queue if r.ticket == found.cycle[0].ticket)
    state.counters.deadlocks += 1
    refuse(state, request, found.error)
    return True
