"""Spare workers: when one is made, which open takes it, and when it is given up for its room.

Pure. A spare is charged like a copy, from before it is made until its process has ended, or until
a copy takes it over with what it holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from sojourn.pool.decisions.budget import Budget
from sojourn.pool.decisions.health import Crashes
from sojourn.pool.decisions.terms import CopyId

EXPECTED_BYTES = 32 * 2**20  # of the first; the next ones are expected to be as large as the last
QUIET_SECONDS = 0.1  # without an open or a close, before one is made


class SpareState(Enum):
    MAKING = "being made"
    READY = "ready"
    ENDING = "being ended"


@dataclass(slots=True)
class Spare:
    """One worker without a model."""

    number: int
    state: SpareState = SpareState.MAKING

    @property
    def account(self) -> CopyId:
        """What it goes by in the budget."""
        return CopyId("(spare)", 0, self.number)


@dataclass(slots=True)
class Spares:
    """Those of one pool."""

    wanted: int
    live: dict[int, Spare] = field(default_factory=dict)
    expected_bytes: int = EXPECTED_BYTES
    quiet_at: float | None = 0.0  # None: something is being opened or closed
    crashes: Crashes = field(default_factory=Crashes)
    last_number: int = 0

    def ready(self) -> list[Spare]:
        return self._in(SpareState.READY)

    def _in(self, state: SpareState) -> list[Spare]:
        return [spare for spare in self.live.values() if spare.state is state]

    def __iter__(self) -> Iterator[Spare]:
        return iter(tuple(self.live.values()))

    def make(self, budget: Budget) -> Spare:
        """Another one; its room is reserved."""
        self.last_number += 1
        spare = self.live[self.last_number] = Spare(self.last_number)
        budget.reserve_spare(spare.account, self.expected_bytes)
        return spare

    def least_bytes(self, budget: Budget) -> int:
        """What an open that takes one needs less room by, whichever it takes."""
        return min((budget.charge_of(spare.account) for spare in self.ready()), default=0)

    def bytes_of(self, state: SpareState, budget: Budget) -> int:
        return sum(budget.charge_of(spare.account) for spare in self._in(state))

    def forget(self, spare: Spare, budget: Budget) -> None:
        """It is no more, or it is a copy's."""
        del self.live[spare.number]
        budget.release(spare.account)
