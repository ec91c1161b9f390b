"""What a service is to the door: its methods, who may call each, and what it is told of a call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sojourn.service.grpc.messages import File
from sojourn.service.http.router import Role


class Call(NamedTuple):
    """One call, beside its message."""

    deadline: float | None = None  # by time.monotonic()
    request_id: str = ""
    # Told of bytes that the call takes beside its message; raises Refused if they are too many.
    hold: Callable[[int], None] = lambda count: None
    peer: str = ""  # its connection


@dataclass(frozen=True, slots=True)
class Method:
    """A message in, a message out."""

    answer: Callable[[Any, Call], Awaitable[Any]]
    role: Role = Role.INFER


@dataclass(frozen=True, slots=True)
class Stream:
    """Messages out, for one in or for a stream of them."""

    answer: Callable[[Any, Call], AsyncIterator[Any]]
    role: Role = Role.INFER


@dataclass(frozen=True, slots=True)
class Service:
    """A service of a file, with the functions that answer."""

    file: File
    name: str
    methods: Mapping[str, Method | Stream]

    @property
    def descriptor(self) -> Any:
        return self.file.descriptor.services_by_name[self.name]
