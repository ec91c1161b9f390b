"""The account of the pool's memory: reserved before opening, charged until the receipt is in.

Pure arithmetic in whole, signed bytes. It never asks the machine how much is free: what other
programs do is not the pool's account.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sojourn.errors import BudgetExceeded, InternalError
from sojourn.pool.decisions.terms import CopyId, Model, Policy, Room
from sojourn.values import format_bytes


class Budget:
    """What every copy is charged with. `spare` may be negative when a session has grown."""

    def __init__(self, limit: Room) -> None:
        self.limit = limit
        self._charges: dict[CopyId, int] = {}
        self._residue: dict[CopyId, int] = {}
        self.charged_bytes = 0

    def __contains__(self, copy: CopyId) -> bool:
        return copy in self._charges

    @property
    def residue_bytes(self) -> int:
        """Bytes that a receipt says did not come back. They stay charged."""
        return sum(self._residue.values())

    @property
    def residue(self) -> dict[CopyId, int]:
        return dict(self._residue)

    @property
    def spare(self) -> Room:
        """What can be reserved now."""
        return Room(self.limit.bytes - self.charged_bytes, self.limit.sessions - len(self._charges))

    def charge_of(self, copy: CopyId) -> int:
        return self._charges.get(copy, 0)

    def reserve(self, copy: CopyId, count: int) -> None:
        if copy in self._charges or not self.spare.covers(Room(count, 1)):
            raise InternalError(f"{copy}: {count} bytes reserved where {self.spare} is spare")
        self._charges[copy] = count
        self.charged_bytes += count

    def remeasure(self, copy: CopyId, count: int) -> None:
        """What a copy holds was measured."""
        self.charged_bytes += count - self._charges[copy]
        self._charges[copy] = count

    def release(self, copy: CopyId, residue_bytes: int = 0) -> None:
        """The receipt is in: only now are the bytes free, but for those it says are left."""
        self.charged_bytes -= self._charges.pop(copy, 0) + self._residue.pop(copy, 0)
        if residue_bytes > 0:
            self._residue[copy] = residue_bytes
            self.charged_bytes += residue_bytes


class Footprints:
    """How much each model was measured to take. They outlive the copies."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._known: dict[str, int] = {}

    def get(self, model: str) -> int | None:
        return self._known.get(model)

    def learn(self, model: str, held_bytes: int) -> None:
        """More is believed at once; less only by halves, since the next stay may grow again."""
        known = self._known.get(model)
        if known is None or held_bytes >= known:
            self._known[model] = held_bytes
        else:
            self._known[model] = (known + held_bytes + 1) // 2

    def expect(self, model: Model) -> int:
        """What to reserve before opening a copy."""
        known = self._known.get(model.name)
        if model.memory_bytes is not None:
            return max(model.memory_bytes, known or 0)
        if known is not None:
            return known
        if model.estimate_bytes is not None:
            return model.estimate_bytes
        # A pool smaller than the guess must still be able to try.
        return min(self._policy.unknown_bytes, self._policy.limit.bytes)


@dataclass(frozen=True, slots=True)
class Holding:
    """One line of the account, for people."""

    name: str
    bytes: int
    standing: str  # "leased at app.py:10 for 3.2 s", "pinned", "being closed"

    def __str__(self) -> str:
        return f"{self.name} {format_bytes(self.bytes)}, {self.standing}"


def _who_holds_what(holdings: Sequence[Holding]) -> str:
    if not holdings:
        return "Nothing is resident."
    listed = sorted(holdings, key=lambda h: -h.bytes)
    return "Held: " + "; ".join(map(str, listed)) + "."


def never_fits(
    name: str, need: Room, limit: Room, for_good: Room, holdings: Sequence[Holding]
) -> BudgetExceeded | None:
    """The error for a model that no waiting can help, or None.

    `for_good` is what nobody will ever give back by himself: pinned copies, and bytes that
    a receipt reported as left behind.
    """
    if limit.covers(need.plus(for_good)):
        return None
    if need.bytes > limit.bytes:
        return BudgetExceeded(
            f"{name} needs {format_bytes(need.bytes)} and the whole pool has "
            f"{format_bytes(limit.bytes)}: it can never fit"
        )
    if need.sessions > limit.sessions:
        return BudgetExceeded(f"{name} cannot be opened: max_sessions is {limit.sessions}")
    if need.bytes + for_good.bytes > limit.bytes:
        text = (
            f"{name} needs {format_bytes(need.bytes)} of the pool's {format_bytes(limit.bytes)}, "
            f"but {format_bytes(for_good.bytes)} of it is pinned, held by its own copies, or was "
            "never given back: waiting cannot help"
        )
    else:
        text = (
            f"{name} needs one of {limit.sessions} sessions, but {for_good.sessions} are pinned "
            "or its own: waiting cannot help"
        )
    return BudgetExceeded(f"{text}. {_who_holds_what(holdings)}")


def no_room(
    name: str, need: Room, limit: Room, spare: Room, waited: str, holdings: Sequence[Holding]
) -> BudgetExceeded:
    """The error for somebody whose time is up while everything is leased or pinned."""
    if need.bytes > spare.bytes:
        text = (
            f"{name} needs {format_bytes(need.bytes)}; {format_bytes(max(0, spare.bytes))} of "
            f"{format_bytes(limit.bytes)} is free"
        )
    else:
        text = f"{name} needs a session; all {limit.sessions} of max_sessions are taken"
    return BudgetExceeded(
        f"{text}, and nothing could be evicted in {waited}. {_who_holds_what(holdings)}"
    )
