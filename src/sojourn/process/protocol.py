"""The messages between client, zygote and worker, other than steps."""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec.msgpack import Decoder

from sojourn.process.surroundings import Surroundings


class Fork(msgspec.Struct, frozen=True, tag=True):
    """Client to zygote, with the worker's descriptors: fork a worker."""

    ticket: int
    name: str
    client_pid: int
    mark: str  # identifies the processes that the worker starts
    surroundings: Surroundings
    memory_bytes: int | None = None
    readable_paths: list[str] | None = None  # not None: untrusted, and may read only these
    best_effort_sandbox: bool = False
    is_spare: bool = False  # it is handed over to a session later


class Status(msgspec.Struct, frozen=True, tag=True):
    """Client to zygote: report how this worker ended."""

    ticket: int
    pid: int


class Remain(msgspec.Struct, frozen=True, tag=True):
    """Client to zygote, which does not answer: never retire, run until the client ends."""

    ticket: int = 0


class Forked(msgspec.Struct, frozen=True, tag=True):
    """Zygote to client, with the pidfd of the new worker. The ticket is that of the request."""

    ticket: int
    pid: int


class Refused(msgspec.Struct, frozen=True, tag=True):
    """Zygote to client: the worker could not be forked."""

    ticket: int
    reason: str


class Ended(msgspec.Struct, frozen=True, tag=True):
    """Zygote to client: the worker's wait status (None if unknown) and the orphans killed."""

    ticket: int
    status: int | None
    children: list[int]


class Ready(msgspec.Struct, frozen=True, tag=True):
    """Zygote to client: the imports are done. An empty version means: not installed."""

    ticket: int
    pid: int
    frameworks: dict[str, str]
    seconds: float


class OpenLane(msgspec.Struct, frozen=True, tag=True):
    """Client to worker, with the lane's descriptors (for the first lane also the board's)."""

    index: int
    reverse: bool = False


class Close(msgspec.Struct, frozen=True, tag=True):
    """Client to worker: close the engine and exit."""


class HandOver(msgspec.Struct, frozen=True):
    """Client to a spare worker, as a call: the session that it belongs to from now on."""

    name: str
    surroundings: Surroundings


ToZygote: TypeAlias = Fork | Status | Remain
FromZygote: TypeAlias = Forked | Refused | Ended | Ready
ToWorker: TypeAlias = OpenLane | Close

to_zygote: Decoder[ToZygote] = Decoder(ToZygote)
from_zygote: Decoder[FromZygote] = Decoder(FromZygote)
to_worker: Decoder[ToWorker] = Decoder(ToWorker)

# The positions of the descriptors in the list of a Fork message.
CONTROL, LIFELINE, OUTPUT, ERRORS = range(4)
