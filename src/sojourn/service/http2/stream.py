"""The exchanges of a connection: what came of each, and what is still to be sent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from sojourn.service.http.limits import Pace
from sojourn.service.http2.frames import END_STREAM, Code, Http2Error
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

    @property
    def is_held_up(self) -> bool:
        """Whether nothing is read, as the client does not read either."""
        return self._sender.is_full

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


class Streams:
    """The streams of a connection that are not over, or whose reader still works, by number."""

    def __init__(self, most: int) -> None:
        self.last = 0  # the highest that the client has begun
        self._there: dict[int, Stream] = {}
        # Streams that we have ended before the client had: it may have sent more of them before it
        # hears of it, and meanwhile have had as many others ended and begun as there may be.
        self._cut: dict[int, None] = {}
        self._most_cut = 2 * most

    def __len__(self) -> int:
        return len(self._there)

    def all(self) -> list[Stream]:
        """As a list, so that they may end meanwhile."""
        return list(self._there.values())

    def get(self, number: int) -> Stream | None:
        """The stream; None if there is none."""
        return self._there.get(number)

    def find(self, number: int, what: str) -> Stream | None:
        """The stream of a frame; None if it is over and may still hear of it."""
        stream = self._there.get(number)
        if stream is not None or number in self._cut:
            return stream
        if not number or number > self.last or not number % 2:
            raise Http2Error(Code.PROTOCOL_ERROR, f"{what} for a stream that is not there")
        if what in ("bytes", "a head"):
            raise Http2Error(Code.STREAM_CLOSED, f"{what} for a stream that has ended")
        return None

    def add(self, stream: Stream) -> None:
        self._there[stream.number] = stream

    def remove(self, stream: Stream) -> bool:
        """Whether it was there."""
        return self._there.pop(stream.number, None) is not None

    def clear(self) -> None:
        self._there.clear()

    def note_cut(self, number: int, flags: int = 0) -> None:
        """We have ended a stream. `flags`: of the last frame that came of it."""
        if not flags & END_STREAM:
            self._cut[number] = None
            if len(self._cut) > self._most_cut:
                del self._cut[next(iter(self._cut))]

    def forget_cut(self, number: int) -> None:
        """The client has ended it too."""
        self._cut.pop(number, None)
