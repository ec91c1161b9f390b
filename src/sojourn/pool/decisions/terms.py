"""The values that the pool's decisions use: models, copies, holders, requests, room, policy."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from sojourn.values import Place, arguments

_LIKE_A_KEY = re.compile(r"@\d+$")
_MOST_COPIES = 4096  # each is a process, and has a slot in the books from the start
UNLIMITED = 2**62  # more bytes or sessions than any machine has; keeps the arithmetic in integers


@dataclass(frozen=True, slots=True)
class Model:
    """A version of a registered model: its rules, such as how many copies may be open.

    A copy is shared by all its holders, because a session is thread-safe. With
    `exclusive` a copy has one holder at a time, as a training loop needs.
    """

    name: str
    version: int = 1
    copies: int = 1
    exclusive: bool = False
    pinned: bool = False
    takes_spares: bool = False  # whether its copies can use spare workers
    parks: bool = True  # whether changed variables are saved and restored
    keep_seconds: float | None = None  # None: the pool's idle_seconds; infinite: forever
    memory_bytes: int | None = None  # what the user declared
    estimate_bytes: int | None = None  # a guess for the first opening
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
    """Return the key of a version, in the books and in messages: "resnet", "resnet@2"."""
    return name if version == 1 else f"{name}@{version}"


class CopyId(NamedTuple):
    """The id of one copy of a model. The generation distinguishes it from earlier ones in its
    slot."""

    model: str  # the model's key
    slot: int
    generation: int

    def __str__(self) -> str:
        return f"{self.model}[{self.slot}]#{self.generation}"


class Holder(NamedTuple):
    """The thread or task (`key`) that requests a lease, and the line of code that does."""

    key: Hashable
    place: Place
    name: str = ""

    def __str__(self) -> str:
        return f"{self.place} ({self.name})" if self.name else str(self.place)


class Request(NamedTuple):
    """A request for a lease. Tickets grow with time and are never reused.

    Without a `version` it is for the latest, even if that changes while it waits. With
    `warm_slot` it is a preload: not a lease is needed, but an open copy in that slot.
    """

    ticket: int
    model: str  # the name; in the queue the key of a version
    holder: Holder
    at: float
    warm_slot: int | None = None
    version: int | None = None


class Room(NamedTuple):
    """An amount of the resources that the pool limits: bytes and sessions."""

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
    """The pool's settings. Seconds are those of the clock that the driver passes in."""

    limit_bytes: int | None = None
    max_sessions: int | None = None
    idle_seconds: float | None = 300.0
    devices: tuple[str, ...] = ()
    spares: int = 0  # number of spare workers to keep ready
    # How long leases of open copies may overtake a request that waits for room.
    patience_seconds: float = 1.0
    # How long a new copy is evicted only if nothing else makes enough room.
    min_residency_seconds: float = 2.0
    # Reserved for the first opening of a model whose size is unknown.
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
