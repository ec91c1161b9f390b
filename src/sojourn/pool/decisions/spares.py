"""The records of a pool's spare workers: their states and what they are charged with.

Pure. A spare is charged like a copy, from before it is made until its process has ended, or until
a copy takes over the worker and its charge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from sojourn.pool.decisions.budget import Budget
from sojourn.pool.decisions.health import Crashes
from sojourn.pool.decisions.terms import CopyId

EXPECTED_BYTES = 32 * 2**20  # of the first spare; then the size of the last one
QUIET_SECONDS = 0.1  # without an opening or closing, before a spare is made


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
        """Its id in the budget."""
        return CopyId("(spare)", 0, self.number)


@dataclass(slots=True)
class Spares:
    """The spare workers of one pool."""

    wanted: int
    live: dict[int, Spare] = field(default_factory=dict)
    expected_bytes: int = EXPECTED_BYTES
    quiet_at: float | None = 0.0  # None: a copy is being opened or closed
    crashes: Crashes = field(default_factory=Crashes)
    last_number: int = 0

    def ready(self) -> list[Spare]:
        return self._in(SpareState.READY)

    def _in(self, state: SpareState) -> list[Spare]:
        return [spare for spare in self.live.values() if spare.state is state]

    def __iter__(self) -> Iterator[Spare]:
        return iter(tuple(self.live.values()))

    def make(self, budget: Budget) -> Spare:
        """Add a spare worker to be made, and reserve its room."""
        self.last_number += 1
        spare = self.live[self.last_number] = Spare(self.last_number)
        budget.reserve_spare(spare.account, self.expected_bytes)
        return spare

    def least_bytes(self, budget: Budget) -> int:
        """Return the bytes by which any ready spare reduces the room that an opening needs."""
        return min((budget.charge_of(spare.account) for spare in self.ready()), default=0)

    def bytes_of(self, state: SpareState, budget: Budget) -> int:
        return sum(budget.charge_of(spare.account) for spare in self._in(state))

    def forget(self, spare: Spare, budget: Budget) -> None:
        """Remove a spare worker that has ended or was taken by a copy."""
        del self.live[spare.number]
        budget.release(spare.account)
