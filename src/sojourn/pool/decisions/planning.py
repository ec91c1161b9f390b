"""Decide which waiters get a copy opened now, which copies leave, and what room is kept for whom.

Pure. Demands are in the order of arrival; the plan names tickets and copies.

1. A demand that fits into the spare room is opened.
2. A demand that fits once closing copies have left, or idle copies are evicted, gets that room
   promised: no later demand takes it, and no other copy is evicted for it (no cascades).
3. While half of all copies are being opened or closed, no idle copy is evicted for a while: the
   remaining candidates would be the copies in best use (no thrashing).
4. A waiter for which evicting idle copies is not enough waits. Others may overtake it, but only
   for `patience_seconds`: then it claims busy copies. They get no new holders and leave when
   they are returned, and the spare room is kept for the waiter. There is one claim at a time.

A waiter that holds a lease is not delayed by 3 or by a claim, and its own claim comes first:
others may wait for what it holds, so delaying it only for fairness could deadlock them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sojourn.pool.decisions.eviction import Candidate, choose_victims
from sojourn.pool.decisions.terms import NO_ROOM, CopyId, Policy, Room


@dataclass(frozen=True, slots=True)
class Demand:
    """A waiter whose model must be opened before it can be served."""

    ticket: int
    model: str
    need: Room
    since: float
    is_urgent: bool = False  # this waiter, or one behind it, holds a lease


@dataclass(frozen=True, slots=True)
class Claim:
    """A waiter for which room is kept, and the busy copies that leave for it."""

    ticket: int
    victims: frozenset[CopyId]


@dataclass(frozen=True, slots=True)
class RoomPlan:
    opens: tuple[int, ...] = ()  # tickets
    evictions: tuple[CopyId, ...] = ()
    claim: Claim | None = None
    wake_at: float | None = None  # when the patience of a waiter ends


def plan_room(
    demands: Sequence[Demand],
    spare: Room,
    leaving: Room,
    idle: Sequence[Candidate],
    busy: Sequence[Candidate],
    now: float,
    policy: Policy,
    claim: Claim | None = None,
    moving: int = 0,
) -> RoomPlan:
    """Distribute the room. `busy` is in the order in which claims take copies; `moving` is
    the number of copies that are being opened or are leaving."""
    opens: list[int] = []
    evictions: list[CopyId] = []
    new_claim: Claim | None = None
    wake_at: float | None = None
    idle = list(idle)
    most_moving = max(1, (len(idle) + len(busy) + moving + 1) // 2)
    sizes = {c.copy: Room(c.bytes, 1) for c in (*idle, *busy)}

    def evict(victims: Sequence[CopyId]) -> Room:
        nonlocal idle
        evictions.extend(victims)
        idle = [c for c in idle if c.copy not in victims]
        return _total(sizes[v] for v in victims)

    if spare.bytes < 0 or spare.sessions < 0:  # over the limit: a session has grown
        short = NO_ROOM.minus(spare.plus(leaving))
        surplus = choose_victims(idle, short, now, policy.min_residency_seconds)
        leaving = leaving.plus(evict([c.copy for c in idle] if surplus is None else surplus))

    claimant: Demand | None = None
    for demand in demands:
        if claimant is not None and not demand.is_urgent:
            continue
        if spare.covers(demand.need):
            opens.append(demand.ticket)
            spare = spare.minus(demand.need)
            continue
        short = demand.need.minus(spare.plus(leaving))
        others = [c for c in idle if c.copy.model != demand.model]
        patience_ends = demand.since + policy.patience_seconds
        is_calm = moving + len(evictions) < most_moving or demand.is_urgent
        victims: Sequence[CopyId] | None = () if NO_ROOM.covers(short) else None
        if victims is None and (is_calm or now >= patience_ends):
            victims = choose_victims(others, short, now, policy.min_residency_seconds)
        if victims is not None:
            leaving = leaving.plus(evict(victims))
            from_spare = _common(spare, demand.need)
            spare = spare.minus(from_spare)
            leaving = leaving.minus(demand.need.minus(from_spare))
            continue
        if now < patience_ends:
            wake_at = patience_ends if wake_at is None else min(wake_at, patience_ends)
            continue
        # The earlier claim stands, unless only the later claimant (urgent) may block others.
        if claimant is None or (demand.is_urgent and not claimant.is_urgent):
            claimant = demand
            before = claim.victims if claim is not None and claim.ticket == demand.ticket else ()
            still_short = short.minus(_total(sizes[c.copy] for c in others))
            new_claim = Claim(demand.ticket, _claim_busy(still_short, busy, frozenset(before)))
    return RoomPlan(tuple(opens), tuple(evictions), new_claim, wake_at)


def _claim_busy(
    short: Room, busy: Sequence[Candidate], before: frozenset[CopyId]
) -> frozenset[CopyId]:
    """Choose busy copies to claim. Those claimed before stay claimed: otherwise new holders would
    keep each of them busy forever."""
    victims: set[CopyId] = set()
    for candidate in (
        *(c for c in busy if c.copy in before),
        *(c for c in busy if c.copy not in before),
    ):
        if candidate.copy not in before and NO_ROOM.covers(short):
            break
        victims.add(candidate.copy)
        short = short.minus(Room(candidate.bytes, 1))
    return frozenset(victims)


def _common(a: Room, b: Room) -> Room:
    return Room(min(max(0, a.bytes), b.bytes), min(max(0, a.sessions), b.sessions))


def _total(rooms: Iterable[Room]) -> Room:
    total = NO_ROOM
    for room in rooms:
        total = total.plus(room)
    return total
