"""Decide which copies are evicted so that another one fits.

Pure: takes sizes and times, returns ids. Closing the copies is the pool's job. The rule is least
recently used, weighted by the cost of bringing a copy back: one that takes ten seconds to
open may stay idle ten times as long as one that takes a second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sojourn.pool.decisions.terms import CopyId, Room

# Costs below so many seconds count as equal: opening is cheap, and differences are noise.
_CHEAPEST_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Candidate:
    """A copy that may be evicted."""

    copy: CopyId
    bytes: int
    last_used: float
    opened_at: float
    cost_seconds: float  # to park it, open it and restore it
    comebacks: float = 0.0  # how often, recently, it was requested again soon after an eviction


def weight(candidate: Candidate) -> float:
    """Return how many times longer than the cheapest copy this one may stay idle.

    Costs are measured and noisy, so they are rounded to powers of two: equal models are evicted in
    the order of their last use. A model that keeps coming back weighs more, which breaks the
    pattern where a loop over one model too many evicts each model just before its turn.
    """
    cost = max(candidate.cost_seconds, _CHEAPEST_SECONDS) / _CHEAPEST_SECONDS
    return 2.0 ** round(math.log2(cost)) * (1.0 + candidate.comebacks)


def choose_victims(
    candidates: Sequence[Candidate],
    short: Room,
    now: float,
    min_residency_seconds: float = 0.0,
) -> tuple[CopyId, ...] | None:
    """Choose victims that free `short`; None if even all candidates are not enough.

    A recently opened copy is spared as long as others suffice, and no copy is evicted in vain: a
    victim whose room turns out not to be needed stays.
    """
    short = short.at_least_nothing()
    if short == (0, 0):
        return ()

    def leaves_late(candidate: Candidate) -> tuple[bool, float, float]:
        is_newcomer = now - candidate.opened_at < min_residency_seconds
        idle = max(0.0, now - candidate.last_used)
        return is_newcomer, -idle / weight(candidate), candidate.last_used

    chosen: list[Candidate] = []
    gained = Room(0, 0)
    for candidate in sorted(candidates, key=leaves_late):
        if gained.covers(short):
            break
        chosen.append(candidate)
        gained = gained.plus(Room(candidate.bytes, 1))
    if not gained.covers(short):
        return None
    for candidate in reversed(chosen[:-1]):  # most valuable first; the last is needed
        without = gained.minus(Room(candidate.bytes, 1))
        if without.covers(short):
            chosen.remove(candidate)
            gained = without
    return tuple(candidate.copy for candidate in chosen)
