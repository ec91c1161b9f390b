"""Find holders that wait for each other, directly or through the budget.

Pure. The test is not for a cycle alone, since a waiter may be helped by any of several copies
or by the bytes of any copy. Instead: holders that do not wait are assumed to return their leases
in time; with that, some waiters can be served, and return theirs in turn; those that are still
not served when nothing changes any more never will be. Among those it looks for a cycle, for
the message.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from sojourn.errors import DeadlockDetected
from sojourn.pool.decisions.terms import CopyId, Holder, Room
from sojourn.values import format_bytes


@dataclass(frozen=True, slots=True)
class Wait:
    """A holder that waits for a model."""

    ticket: int
    holder: Holder
    model: str


@dataclass(frozen=True, slots=True)
class Hold:
    """A holder that has a lease. `holder.place` is the line that took it."""

    holder: Holder
    copy: CopyId


@dataclass(frozen=True, slots=True)
class Standing:
    """A copy as far as deadlocks are concerned."""

    copy: CopyId
    bytes: int
    is_exclusive: bool = False
    is_pinned: bool = False
    is_leaving: bool = False


@dataclass(frozen=True, slots=True)
class World:
    """Everything the answer depends on."""

    waits: Sequence[Wait]
    holds: Sequence[Hold]
    copies: Sequence[Standing]
    slots: Mapping[str, int]  # how many copies each model may have
    needs: Mapping[str, Room]  # what opening a copy of each model takes
    limit: Room
    residue_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Deadlock:
    """The waits of the cycle in order; the first one gets the error."""

    cycle: tuple[Wait, ...]
    error: DeadlockDetected = field(compare=False)


def find_deadlock(world: World) -> Deadlock | None:
    """The deadlock that involves the latest request, or None."""
    stuck = _stuck_waits(world)
    holding = {hold.holder.key for hold in world.holds}
    for wait in sorted(stuck, key=lambda w: -w.ticket):
        if wait.holder.key in holding:
            cycle = _cycle_from(wait, stuck, world)
            if cycle is not None:
                return Deadlock(cycle, DeadlockDetected(_tell(cycle, world)))
    return None


def _stuck_waits(world: World) -> list[Wait]:
    """The waits that cannot end, because those who could end them wait themselves."""
    stuck = list(world.waits)
    while True:
        blocked = {wait.holder.key for wait in stuck}
        held = {hold.copy for hold in world.holds if hold.holder.key in blocked}
        still = [wait for wait in stuck if not _can_be_served(wait, held, world)]
        if len(still) == len(stuck):
            return stuck
        stuck = still


def _can_be_served(wait: Wait, held: set[CopyId], world: World) -> bool:
    """Whether this wait ends when everybody but the holders of `held` gives back."""
    taken = 0
    for standing in world.copies:
        if standing.copy.model != wait.model or standing.is_leaving:
            continue
        if standing.copy in held and standing.is_exclusive:
            taken += 1
        else:
            return True
    if taken >= world.slots[wait.model]:
        return False
    stays = Room(world.residue_bytes, 0)
    for standing in world.copies:
        if not standing.is_leaving and (standing.copy in held or standing.is_pinned):
            stays = stays.plus(Room(standing.bytes, 1))
    return world.limit.covers(stays.plus(world.needs[wait.model]))


def _blockers(wait: Wait, stuck: Sequence[Wait], world: World) -> list[Wait]:
    """The stuck waits whose holders have what this one needs: its model first, then any bytes."""
    of_model: set[Hashable] = set()
    of_bytes: set[Hashable] = set()
    for hold in world.holds:
        (of_model if hold.copy.model == wait.model else of_bytes).add(hold.holder.key)
    first = [w for w in stuck if w.holder.key in of_model]
    if _needs_room(wait, world):
        first += [w for w in stuck if w.holder.key in of_bytes and w not in first]
    return first


def _needs_room(wait: Wait, world: World) -> bool:
    present = sum(s.copy.model == wait.model and not s.is_leaving for s in world.copies)
    return present < world.slots[wait.model]


def _cycle_from(start: Wait, stuck: Sequence[Wait], world: World) -> tuple[Wait, ...] | None:
    """The shortest way from `start` back to it."""
    own = {hold.copy for hold in world.holds if hold.holder.key == start.holder.key}
    if not _can_be_served(start, own, world):
        return (start,)  # it waits only for itself
    paths: list[tuple[Wait, ...]] = [(start,)]
    seen: set[int] = set()
    while paths:
        longer: list[tuple[Wait, ...]] = []
        for path in paths:
            for blocker in _blockers(path[-1], stuck, world):
                if blocker.holder.key == path[-1].holder.key:
                    continue
                if blocker.holder.key == start.holder.key:
                    return path
                if blocker.ticket not in seen:
                    seen.add(blocker.ticket)
                    longer.append((*path, blocker))
        paths = longer
    return None


def _tell(cycle: Sequence[Wait], world: World) -> str:
    sizes = {standing.copy: standing.bytes for standing in world.copies}
    taken = {hold.copy for hold in world.holds}
    staying = sum(s.bytes for s in world.copies if s.copy in taken or s.is_pinned)
    lines = []
    for wait in cycle:
        held = [hold for hold in world.holds if hold.holder.key == wait.holder.key]
        listed = " and ".join(
            f"{hold.copy.model} ({format_bytes(sizes.get(hold.copy, 0))}, "
            f"leased at {hold.holder.place})"
            for hold in held
        )
        wanted = wait.model
        if _needs_room(wait, world):
            need = world.needs[wait.model].bytes
            is_short = world.residue_bytes + staying + need > world.limit.bytes
            room = f"{format_bytes(need)} of room"
            if not is_short:
                room = f"one of {world.limit.sessions} sessions"
            wanted = f"{room} for {wait.model}"
        who = wait.holder.name or "a holder"
        lines.append(f"{who} holds {listed} and waits for {wanted} at {wait.holder.place}")
    advice = (
        "Give back before you ask for more, or ask in the same order everywhere."
        if len(cycle) > 1
        else "Give it back before you ask for more."
    )
    return "deadlock: " + "; ".join(lines) + ". " + advice
