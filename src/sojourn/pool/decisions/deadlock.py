"""Find holders that wait for each other, directly or through the budget.

Pure. Finding a cycle is not enough, since any of several copies, or the bytes of any copy, may
serve a waiter. Instead: holders that do not wait are assumed to return their leases in time; with
that, some waiters can be served, and return theirs in turn. Waiters that are still not served when
nothing changes any more are deadlocked. Among them a cycle is searched, for the message.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from sojourn.errors import DeadlockDetected
from sojourn.pool.decisions.state import PoolState
from sojourn.pool.decisions.terms import CopyId, Request, Room
from sojourn.values import format_bytes


def find_deadlock(state: PoolState) -> tuple[Request, DeadlockDetected] | None:
    """Return the latest request in a deadlock and the error that breaks the deadlock, or None."""
    stuck = _stuck_waits(state)
    for wait in sorted(stuck, key=lambda w: -w.ticket):
        if state.leases.is_holding(wait.holder):
            cycle = _cycle_from(wait, stuck, state)
            if cycle is not None:
                return wait, DeadlockDetected(_tell(cycle, state))
    return None


def _stuck_waits(state: PoolState) -> list[Request]:
    """Return the waits that cannot end, because all holders that could end them wait too."""
    stuck = list(state.queue)
    while True:
        held = _held_by({wait.holder.key for wait in stuck}, state)
        still = [wait for wait in stuck if not _can_be_served(wait, held, state)]
        if len(still) == len(stuck):
            return stuck
        stuck = still


def _held_by(keys: set[Hashable], state: PoolState) -> set[CopyId]:
    return {lease.copy for lease in state.leases if lease.holder.key in keys}


def _can_be_served(wait: Request, held: set[CopyId], state: PoolState) -> bool:
    """Whether this wait ends when all leases except those of the copies in `held` are returned."""
    taken = 0
    for copy in state.residents.of(wait.model):
        if copy.is_leaving:
            continue
        if copy.id not in held or not copy.model.exclusive:
            return True
        taken += 1
    entry = state.models[wait.model]
    if taken >= entry.model.copies:
        return False
    stays = Room(state.budget.residue_bytes, 0)
    for copy in state.residents:
        if not copy.is_leaving and (copy.id in held or copy.stays_for_good):
            stays = stays.plus(Room(state.budget.charge_of(copy.id), 1))
    return state.policy.limit.covers(stays.plus(state.need(entry)))


def _blockers(wait: Request, stuck: Sequence[Request], state: PoolState) -> list[Request]:
    """Return the stuck waits whose holders have what this wait needs: its model, then any bytes."""
    of_model: set[Hashable] = set()
    of_bytes: set[Hashable] = set()
    for lease in state.leases:
        (of_model if lease.copy.model == wait.model else of_bytes).add(lease.holder.key)
    first = [w for w in stuck if w.holder.key in of_model]
    if _needs_room(wait, state):
        first += [w for w in stuck if w.holder.key in of_bytes and w not in first]
    return first


def _needs_room(wait: Request, state: PoolState) -> bool:
    present = sum(not copy.is_leaving for copy in state.residents.of(wait.model))
    return present < state.models[wait.model].model.copies


def _cycle_from(
    start: Request, stuck: Sequence[Request], state: PoolState
) -> tuple[Request, ...] | None:
    """Return the shortest cycle of stuck waits that begins and ends at `start`, or None."""
    if not _can_be_served(start, _held_by({start.holder.key}, state), state):
        return (start,)  # it waits only for itself
    paths: list[tuple[Request, ...]] = [(start,)]
    seen: set[int] = set()
    while paths:
        longer: list[tuple[Request, ...]] = []
        for path in paths:
            for blocker in _blockers(path[-1], stuck, state):
                if blocker.holder.key == path[-1].holder.key:
                    continue
                if blocker.holder.key == start.holder.key:
                    return path
                if blocker.ticket not in seen:
                    seen.add(blocker.ticket)
                    longer.append((*path, blocker))
        paths = longer
    return None


def _tell(cycle: Sequence[Request], state: PoolState) -> str:
    taken = {lease.copy for lease in state.leases}
    staying = [c.id for c in state.residents if c.id in taken or c.stays_for_good]
    stay_bytes = state.budget.residue_bytes + sum(map(state.budget.charge_of, staying))
    limit = state.policy.limit
    lines = []
    for wait in cycle:
        listed = " and ".join(
            f"{lease.copy.model} ({format_bytes(state.budget.charge_of(lease.copy))}, "
            f"leased at {lease.holder.place})"
            for lease in state.leases
            if lease.holder.key == wait.holder.key
        )
        wanted = wait.model
        if _needs_room(wait, state):
            need = state.need(state.models[wait.model]).bytes
            room = f"one of {limit.sessions} sessions"
            if stay_bytes + need > limit.bytes:
                room = f"{format_bytes(need)} of room"
            wanted = f"{room} for {wait.model}"
        who = wait.holder.name or "a holder"
        lines.append(f"{who} holds {listed} and waits for {wanted} at {wait.holder.place}")
    advice = (
        "Give back before you ask for more, or ask in the same order everywhere."
        if len(cycle) > 1
        else "Give it back before you ask for more."
    )
    return "deadlock: " + "; ".join(lines) + ". " + advice
