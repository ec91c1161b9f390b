"""The messages between client, zygote and worker that are not steps."""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec.msgpack import Decoder

from sojourn.process.surroundings import Surroundings


class Fork(msgspec.Struct, frozen=True, tag=True):
    """Client to zygote, with the worker's descriptors: make a worker."""

    ticket: int
    name: str
    client_pid: int
    mark: str  # by which what it starts is known as its own
    surroundings: Surroundings
    memory_bytes: int | None = None
    readable_paths: list[str] | None = None  # not None: untrusted, and may read only these
    best_effort_sandbox: bool = False
    is_spare: bool = False  # it will be told later whose it is


class Status(msgspec.Struct, frozen=True, tag=True):
    """Client to zygote: this worker has ended; how?"""

    ticket: int
    pid: int


class Remain(msgspec.Struct, frozen=True, tag=True):
    """Client to zygote, which does not answer: stay for as long as the client, however idle."""

    ticket: int = 0


class Forked(msgspec.Struct, frozen=True, tag=True):
    """Zygote to client, with the worker's pidfd. The ticket is that of the request."""

    ticket: int
    pid: int


class Refused(msgspec.Struct, frozen=True, tag=True):
    """Zygote to client: the worker could not be made."""

    ticket: int
    reason: str


class Ended(msgspec.Struct, frozen=True, tag=True):
    """Zygote to client: the wait status (None if it is not known), and what else was ended."""

    ticket: int
    status: int | None
    children: list[int]


class Ready(msgspec.Struct, frozen=True, tag=True):
    """Zygote to client: the framework is imported (or why it is not)."""

    ticket: int
    pid: int
    frameworks: dict[str, str]
    seconds: float


class OpenLane(msgspec.Struct, frozen=True, tag=True):
    """Client to worker, with the lane's descriptors (the first one brings the board as well)."""

    index: int
    reverse: bool = False


class Close(msgspec.Struct, frozen=True, tag=True):
    """Client to worker: end."""


class HandOver(msgspec.Struct, frozen=True):
    """Client to a spare worker, as a call: whose it is from now on."""

    name: str
    surroundings: Surroundings


ToZygote: TypeAlias = Fork | Status | Remain
FromZygote: TypeAlias = Forked | Refused | Ended | Ready
ToWorker: TypeAlias = OpenLane | Close

to_zygote: Decoder[ToZygote] = Decoder(ToZygote)
from_zygote: Decoder[FromZygote] = Decoder(FromZygote)
to_worker: Decoder[ToWorker] = Decoder(ToWorker)

# Where the descriptors of a Fork message are in their list.
CONTROL, LIFELINE, OUTPUT, ERRORS = range(4)
