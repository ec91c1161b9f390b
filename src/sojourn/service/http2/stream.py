"""One exchange of a connection: what came of it, and what is still to be sent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from sojourn.service.http.limits import Pace
from sojourn.service.http2.frames import Code
from sojourn.service.http2.heads import Head

if TYPE_CHECKING:
    from sojourn.service.http2.connection import Connection


class Reader(Protocol):
    """Who reads a stream. It takes the bytes as they come."""

    def data(self, piece: bytes) -> bool:
        """Some of the request's bytes. False: no more of them for now, until the stream is told
        by `taken`."""

    def end(self) -> None:
        """The request is whole."""

    def lost(self) -> None:
        """The client has left the stream, or is gone."""

    def is_busy(self) -> bool:
        """Whether it still works on it, though the stream may be gone."""


class Stream:
    """It is there until both sides have said all that they have to say, or one gives up."""

    __slots__ = (
        "_can_go_on", "_connection", "_owed", "_sender", "came", "gives", "has_ended", "head",
        "is_over", "number", "pace", "reader", "takes", "trailers", "unsent",
    )  # fmt: skip

    def __init__(self, number: int, head: Head, connection: Connection) -> None:
        self._connection = connection
        self._sender = sender = connection.sender
        self.number = number
        self.head = head
        self.reader: Reader | None = None
        self.has_ended = False  # the client's side
        self.is_over = False  # our side, and with it all
        self.came = 0  # bytes of the request
        self.gives = sender.stream_window  # what the client may still send
        self._owed = 0  # of what it has sent: it may send as much again
        self.takes = sender.initial  # what the client can still take; below zero: less than that
        self.unsent: deque[bytes | memoryview] = deque()
        self.trailers: bytes | None = None  # behind what is unsent
        self.pace: Pace | None = None  # while the client takes nothing
        self._can_go_on: asyncio.Event | None = None

    @property
    def peer(self) -> str:
        """Who is at the other end."""
        return self._sender.peer

    # -- what comes ------------------------------------------------------------------------------

    def read(self, piece: bytes, padding: int = 0) -> None:
        """Some of the request's bytes have come."""
        if self.reader is not None:
            self.came += len(piece)
            self._owed += len(piece) + padding
            if self.reader.data(piece):
                self.taken()

    def taken(self) -> None:
        """The reader is done with all that has come."""
        if not self.has_ended and not self.is_over:
            window, owed = self._sender.stream_window, self._owed
            if owed >= window // 2:
                self._owed = 0
                self.gives += owed
                self._sender.grant(self.number, owed)

    # -- what goes -------------------------------------------------------------------------------

    def answer(self, head: bytes, body: Sequence[bytes], trailers: bytes) -> None:
        """Everything at once. Head and trailers are compressed already."""
        if not self.is_over:
            self.trailers = trailers
            self.unsent.extend(filter(None, body))
            self._sender.begin(self, head)

    def begin(self, head: bytes) -> None:
        """The head of an answer whose bytes follow."""
        if not self.is_over:
            self._sender.begin(self, head)

    def send(self, pieces: Sequence[bytes]) -> None:
        """Some bytes of an answer."""
        if not self.is_over:
            self.unsent.extend(filter(None, pieces))
            self._sender.go_on(self)

    def finish(self, trailers: bytes) -> None:
        """No more bytes."""
        if not self.is_over:
            self.trailers = trailers
            self._sender.go_on(self)

    def reset(self, code: Code) -> None:
        """End it here, whatever is unsent."""
        if not self.is_over:
            self._sender.reset(self, code)

    async def sent(self) -> None:
        """Returns once the client has room for more."""
        while not self.is_over and (self.unsent or self._sender.is_full):
            if self._can_go_on is None:
                self._can_go_on = asyncio.Event()
            self._can_go_on.clear()
            await self._can_go_on.wait()

    def left(self) -> None:
        """Its reader works on it no more."""
        if self.is_over:
            self._connection.forget(self)

    def wake(self) -> None:
        """There may be room."""
        if self._can_go_on is not None:
            self._can_go_on.set()
