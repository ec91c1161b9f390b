"""The types of the planner: nodes, models and orders. Plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sojourn.pool.decisions.terms import CopyId
from sojourn.values import arguments


@dataclass(frozen=True, slots=True)
class Node:
    """A node on which copies can be opened: its memory budget and its kinds of devices."""

    name: str
    budget_bytes: int
    devices: frozenset[str] = frozenset({"cpu"})


@dataclass(frozen=True, slots=True)
class Model:
    """A model that is registered with the cluster, and on how many nodes it is open while it is
    used.

    `bytes` is what a copy is charged until one was measured. A `pinned` model is open all the time.
    `cost_seconds` is the time to reopen a copy. A copy that was idle for `keep_seconds` is closed;
    None: when its room is needed.
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
    """Open this copy; with `restores`, from its parked state."""

    copy: CopyId
    node: str
    restores: bool = False


class Park(NamedTuple):
    """Save the changed state of this copy to storage, then close it."""

    copy: CopyId
    node: str


class Close(NamedTuple):
    """Close this copy; its state has not changed since it was loaded or saved."""

    copy: CopyId
    node: str


class Lost(NamedTuple):
    """The changed state of this copy was lost with its node: it restarts from the model's own
    state."""

    copy: CopyId
    node: str


Order = Open | Park | Close | Lost


@dataclass(frozen=True, slots=True)
class Rules:
    """The planner's settings. Seconds are those of the clock that is passed in."""

    # A newly opened copy is evicted within this time only if nothing else makes enough room, and
    # only for a pinned model.
    min_residency_seconds: float = 2.0
    # Reopening a model within this time of its eviction means that the eviction was a bad choice.
    comeback_seconds: float = 600.0
    # Whether parked state can be restored on any node, or only on the node that has it.
    has_shared_storage: bool = False
    # How many nodes are searched for the least loss when a copy must be evicted.
    looks_at: int = 4
    # How many models one event plans for; the rest wait for the next event.
    most_at_once: int = 4
    # Time until a model that found no room is retried, if nothing changes before.
    retry_seconds: float = 1.0
    # Time until closing is retried for a copy whose state could not be parked.
    stay_seconds: float = 2.0
