"""The interface of services to the door: methods, the role each needs, and the facts of a call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sojourn.service.grpc.messages import File
from sojourn.service.http.router import Role


class Call(NamedTuple):
    """The facts of one call, besides its message."""

    deadline: float | None = None  # by time.monotonic()
    request_id: str = ""
    # Counts bytes that the call uses besides its message; raises Refused if they are too many.
    hold: Callable[[int], None] = lambda count: None
    peer: str = ""  # address of its connection


@dataclass(frozen=True, slots=True)
class Method:
    """A unary method: one message in, one message out."""

    answer: Callable[[Any, Call], Awaitable[Any]]
    role: Role = Role.INFER


@dataclass(frozen=True, slots=True)
class Stream:
    """A streaming method: a stream of messages out, for one message or a stream in."""

    answer: Callable[[Any, Call], AsyncIterator[Any]]
    role: Role = Role.INFER


@dataclass(frozen=True, slots=True)
class Service:
    """A service of a `.proto` file, with the functions that answer."""

    file: File
    name: str
    methods: Mapping[str, Method | Stream]

    @property
    def descriptor(self) -> Any:
        return self.file.descriptor.services_by_name[self.name]
