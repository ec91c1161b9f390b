"""The whole state of one pool, and questions about it. Only the scheduler's events change it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from sojourn.pool.decisions.budget import Budget
from sojourn.pool.decisions.catalogue import Catalogue, Entry
from sojourn.pool.decisions.effects import Effect, Effects, SetTimer
from sojourn.pool.decisions.eviction import Candidate
from sojourn.pool.decisions.planning import Claim
from sojourn.pool.decisions.queue import Leases, WaitQueue
from sojourn.pool.decisions.residents import Copy, CopyState, Residents
from sojourn.pool.decisions.spares import Spares, SpareState
from sojourn.pool.decisions.status import Counters
from sojourn.pool.decisions.terms import Policy, Room
from sojourn.values import Place


@dataclass(slots=True)
class PoolState:
    """The parts, each with its own file, and the effects that are being collected."""

    policy: Policy
    models: Catalogue = field(default_factory=Catalogue)
    residents: Residents = field(default_factory=Residents)
    queue: WaitQueue = field(default_factory=WaitQueue)
    leases: Leases = field(default_factory=Leases)
    counters: Counters = field(default_factory=Counters)
    claim: Claim | None = None
    closed_at: Place | None = None
    timer_at: float | None = None
    out: list[Effect] = field(default_factory=list)
    budget: Budget = field(init=False)
    spares: Spares = field(init=False)

    def __post_init__(self) -> None:
        self.budget = Budget(self.policy.limit)
        self.spares = Spares(self.policy.spares)

    # -- effects ------------------------------------------------------------------------------

    def take_effects(self) -> Effects:
        effects = tuple(self.out)
        self.out.clear()
        return effects

    def wake(self, at: float) -> None:
        """Make sure that the timer expires at this time at the latest."""
        if self.timer_at is None or at < self.timer_at:
            self.timer_at = at
            self.out.append(SetTimer(at))

    def watch_idle(self, copy: Copy) -> None:
        leaves_at = self.leaves_at(copy)
        if leaves_at is not None:
            self.wake(leaves_at)

    # -- questions ----------------------------------------------------------------------------

    def need(self, entry: Entry) -> Room:
        """Return the room to reserve for a new copy. A size that was not declared is a guess. It
        may make a model wait for room but must not exclude it, so it is limited to what the pool
        can ever have."""
        expected = entry.expected_bytes(self.policy)
        if entry.model.memory_bytes is None and self.policy.limit_bytes is not None:
            expected = min(expected, self.attainable_bytes)
        return Room(expected, 1)

    @property
    def attainable_bytes(self) -> int:
        """The most that a model can get: the limit without what is held permanently."""
        return max(0, self.policy.limit.bytes - self.held_for_good().bytes)

    def leaves_at(self, copy: Copy) -> float | None:
        """Return when an idle copy has been idle for too long, or None if it may stay forever.

        Timers are set to this very number and compared with it. If the two were computed
        differently, rounding could make a timer expire too early, again and again.
        """
        keep = copy.model.keep_seconds
        keep = self.policy.idle_seconds if keep is None else keep
        if keep is None or keep == math.inf or copy.model.pinned:
            return None
        return max(copy.last_used + keep, copy.park_retry_at)

    @property
    def is_over_limit(self) -> bool:
        return self.budget.charged_bytes > self.budget.limit.bytes

    def leaving_room(self) -> Room:
        """The room that will become free by itself. It is charged until the receipts arrive."""
        leaving = [copy.id for copy in self.residents if copy.is_leaving]
        spares = self.spares.bytes_of(SpareState.ENDING, self.budget)
        sessions = sum(map(self.budget.is_session, leaving))
        return Room(sum(map(self.budget.charge_of, leaving)) + spares, sessions)

    def held_for_good(self, wanted_whole: str | None = None) -> Room:
        """The room that waiting does not free; it includes all copies of the model
        `wanted_whole`, which is being preloaded."""
        pinned = [
            copy
            for copy in self.residents
            if copy.stays_for_good
            or (copy.id.model == wanted_whole and not copy.is_leaving and not copy.retiring)
        ]
        # A reservation by a guess is corrected as soon as the copy is open and measured.
        known = [copy.id for copy in pinned if not copy.is_reserved_on_a_guess]
        total = sum(map(self.budget.charge_of, known)) + self.budget.residue_bytes
        return Room(total, len(pinned))

    def is_overrun_by(self, grown: Copy, now: float) -> bool:
        """Whether the pool would exceed its limit even if all other idle copies left."""
        if not self.is_over_limit:
            return False
        spares = self.spares.bytes_of(SpareState.READY, self.budget)
        freed = (
            self.leaving_room().bytes
            + spares
            + sum(
                self.budget.charge_of(copy.id)
                for copy in self.residents
                if copy is not grown and copy.can_leave(now)
            )
        )
        return self.budget.spare.bytes + freed < 0

    def candidate(self, copy: Copy) -> Candidate:
        cost = copy.open_seconds
        if copy.changed:
            cost += copy.park_seconds or copy.open_seconds
        siblings = sum(not c.is_leaving for c in self.residents.of(copy.id.model))
        return Candidate(
            copy.id,
            self.budget.charge_of(copy.id),
            copy.last_used,
            copy.opened_at,
            cost / max(1, siblings),  # while a sibling stays, no request has to wait for this copy
            self.models[copy.id.model].comebacks,
        )

    def idle_candidates(self, now: float) -> list[Candidate]:
        return [self.candidate(copy) for copy in self.residents if copy.can_leave(now)]

    def busy_candidates(self) -> list[Candidate]:
        """The copies that a claim may take: first those with young leases, which are probably
        given back soon, and last a training run that has held its lease for an hour."""
        busy = [
            copy
            for copy in self.residents
            if copy.state is CopyState.READY and copy.is_leased and not copy.model.pinned
        ]
        busy.sort(key=lambda copy: -min(copy.leased_since.values()))
        return [self.candidate(copy) for copy in busy]

    def least_used_device(self) -> str:
        load = dict.fromkeys(self.policy.devices, 0)
        for copy in self.residents:
            if copy.device in load:
                load[copy.device] += self.budget.charge_of(copy.id)
        return min(load, key=lambda device: load[device], default="")
