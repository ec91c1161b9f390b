"""The words of the pool's decisions: models, copies, holders, requests, room. Plain values."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from sojourn.values import Place, arguments

_LIKE_A_KEY = re.compile(r"@\d+$")
_MOST_COPIES = 4096  # each is a process, and has its place in the books from the start
UNLIMITED = 2**62  # more bytes or sessions than any machine has; keeps the arithmetic in integers


@dataclass(frozen=True, slots=True)
class Model:
    """A version of a registered model: how many copies of it may stay, and by which rules.

    A copy is shared by everybody who leases it, because a session is thread-safe. With
    `exclusive` a copy has one holder at a time, which is what a training loop wants.
    """

    name: str
    version: int = 1
    copies: int = 1
    exclusive: bool = False
    pinned: bool = False
    takes_spares: bool = False  # whether a worker that was made ahead can be its own
    parks: bool = True  # whether what it has learnt can be put away and brought back
    keep_seconds: float | None = None  # None: the pool's idle_seconds; infinite: for ever
    memory_bytes: int | None = None  # what the user declared
    estimate_bytes: int | None = None  # a guess for the very first open
    max_runs: int | None = None
    max_growth_bytes: int | None = None

    def __post_init__(self) -> None:
        arguments.text("a model's name", self.name)
        arguments.whole(f"{self.name}: version", self.version)
        if _LIKE_A_KEY.search(self.name):
            raise ValueError(f"a model's name must not end like a version: {self.name!r}")
        arguments.whole(f"{self.name}: copies", self.copies, most=_MOST_COPIES)
        for what, least in (("max_runs", 1), ("memory_bytes", 0), ("max_growth_bytes", 0)):
            value = getattr(self, what)
            if value is not None:
                arguments.whole(f"{self.name}: {what}", value, least)
        if self.keep_seconds not in (None, math.inf):
            arguments.seconds(f"{self.name}: keep_seconds", self.keep_seconds)

    @property
    def key(self) -> str:
        return key_of(self.name, self.version)


def key_of(name: str, version: int) -> str:
    """What a version of a model goes by, in the books and in messages: "resnet", "resnet@2"."""
    return name if version == 1 else f"{name}@{version}"


class CopyId(NamedTuple):
    """One resident of one model. The generation tells it from its predecessors in the slot."""

    model: str  # the model's key
    slot: int
    generation: int

    def __str__(self) -> str:
        return f"{self.model}[{self.slot}]#{self.generation}"


class Holder(NamedTuple):
    """A thread or task that asks (`key`), and the line it asks from."""

    key: Hashable
    place: Place
    name: str = ""

    def __str__(self) -> str:
        return f"{self.place} ({self.name})" if self.name else str(self.place)


class Request(NamedTuple):
    """A wish for a lease. Tickets grow with time and are never used twice.

    Without a `version` it is for the latest, also if that changes while it waits. With
    `warm_slot` no lease is wanted: the copy in that slot shall be resident (preload).
    """

    ticket: int
    model: str  # the name; in the queue the key of the version that it waits for
    holder: Holder
    at: float
    warm_slot: int | None = None
    version: int | None = None


class Room(NamedTuple):
    """An amount of what the pool limits: bytes, and the number of sessions."""

    bytes: int
    sessions: int

    def plus(self, other: Room) -> Room:
        return Room(self.bytes + other.bytes, self.sessions + other.sessions)

    def minus(self, other: Room) -> Room:
        return Room(self.bytes - other.bytes, self.sessions - other.sessions)

    def covers(self, need: Room) -> bool:
        return self.bytes >= need.bytes and self.sessions >= need.sessions

    def at_least_nothing(self) -> Room:
        return Room(max(0, self.bytes), max(0, self.sessions))


NO_ROOM = Room(0, 0)


@dataclass(frozen=True, slots=True)
class Policy:
    """The pool's own settings. Seconds are those of the clock that the driver passes in."""

    limit_bytes: int | None = None
    max_sessions: int | None = None
    idle_seconds: float | None = 300.0
    devices: tuple[str, ...] = ()
    spares: int = 0  # workers that are kept ready
    # Warm leases may overtake a request that waits for room. After this long they no longer do.
    patience_seconds: float = 1.0
    # A newcomer is evicted within this time only when nothing else would make enough room.
    min_residency_seconds: float = 2.0
    # Reserved for the first open of a model of which nothing is known.
    unknown_bytes: int = 256 * 2**20

    def __post_init__(self) -> None:
        if self.max_sessions is not None:
            arguments.whole("max_sessions", self.max_sessions)
        arguments.whole("spares", self.spares, 0)
        if self.idle_seconds is not None:
            arguments.seconds("idle_seconds", self.idle_seconds)

    @property
    def limit(self) -> Room:
        return Room(
            UNLIMITED if self.limit_bytes is None else self.limit_bytes,
            UNLIMITED if self.max_sessions is None else self.max_sessions,
        )
