"""The words of the planner: nodes, models, and what it orders. Plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sojourn.pool.decisions.terms import CopyId
from sojourn.values import arguments


@dataclass(frozen=True, slots=True)
class Node:
    """A node that copies can be opened on: what its pool may hold, and its kinds of devices."""

    name: str
    budget_bytes: int
    devices: frozenset[str] = frozenset({"cpu"})


@dataclass(frozen=True, slots=True)
class Model:
    """A model that is known to the cluster, and on how many nodes it is open while it is used.

    `bytes` is what a copy is charged with until one was measured. A `pinned` one is open all the
    time. `cost_seconds` is what it takes to bring a copy back. A copy that was idle for
    `keep_seconds` is closed; None: when its room is needed.
    """

    name: str
    bytes: int
    copies: int = 1
    pinned: bool = False
    device: str = "cpu"
    cost_seconds: float = 1.0
    keep_seconds: float | None = None

    def __post_init__(self) -> None:
        arguments.text("a model's name", self.name)
        arguments.whole(f"{self.name}: bytes", self.bytes, 0)
        arguments.whole(f"{self.name}: copies", self.copies)


class Open(NamedTuple):
    """Open this copy; if it was parked, with the state that it had."""

    copy: CopyId
    node: str
    restores: bool = False


class Park(NamedTuple):
    """Save what this copy has learnt where it can be found again, then close it."""

    copy: CopyId
    node: str


class Close(NamedTuple):
    """Close this copy: its variables are as they were loaded or saved."""

    copy: CopyId
    node: str


class Lost(NamedTuple):
    """What this copy had learnt is gone with its node: it starts from the model's own state."""

    copy: CopyId
    node: str


Order = Open | Park | Close | Lost


@dataclass(frozen=True, slots=True)
class Rules:
    """The planner's settings. Seconds are those of the clock that is passed in."""

    # A newcomer leaves within this time only when nothing else would make enough room, and for a
    # model that is not pinned not at all.
    min_residency_seconds: float = 2.0
    # A model that was evicted is brought back within this time: that was a bad choice.
    comeback_seconds: float = 600.0
    # Whether parked state can be opened on any node, or on the one that has it only.
    has_shared_storage: bool = False
    # How many nodes are searched for the least loss when a copy must be closed.
    looks_at: int = 4
    # How many models one event plans for; the rest is due at the next.
    most_at_once: int = 4
    # How long until a model that found no room is tried again, if nothing changes before.
    retry_seconds: float = 1.0
    # How long until a copy whose state could not be kept is asked to leave again.
    stay_seconds: float = 2.0
