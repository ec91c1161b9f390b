"""Streams: the exchanges of a connection, with what was received and what is still unsent."""

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
    """The consumer of a stream's bytes, as they are received."""

    def data(self, piece: bytes) -> bool:
        """Take some of the request's bytes. Returns False if there is no room for more until the
        reader calls `Stream.taken`."""

    def end(self) -> None:
        """The request is complete."""

    def lost(self) -> None:
        """The client has cancelled the stream or disconnected."""

    def is_busy(self) -> bool:
        """Whether the reader still works on the request, even if the stream is over."""


class Stream:
    """One exchange, until both sides have sent everything or one of them gives up."""

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
        self.has_ended = False  # the client has sent everything
        self.is_over = False  # the whole exchange has ended
        self.came = 0  # received bytes of the request
        self.gives = sender.stream_window  # bytes that the client may still send
        self._owed = 0  # consumed bytes that no WINDOW_UPDATE has returned to the client yet
        self.takes = sender.initial  # bytes that the client can still take; can be negative
        self.unsent: deque[bytes | memoryview] = deque()
        self.trailers: bytes | None = None  # to send after `unsent`
        self.pace: Pace | None = None  # while the stream waits for window
        self._can_go_on: asyncio.Event | None = None

    @property
    def peer(self) -> str:
        """The client's address."""
        return self._sender.peer

    @property
    def is_held_up(self) -> bool:
        """Whether reading is paused because the client does not read its answers."""
        return self._sender.is_full

    # -- receiving -------------------------------------------------------------------------------

    def read(self, piece: bytes, padding: int = 0) -> None:
        """Pass received bytes of the request to the reader."""
        if self.reader is not None:
            self.came += len(piece)
            self._owed += len(piece) + padding
            if self.reader.data(piece):
                self.taken()

    def taken(self) -> None:
        """The reader has consumed all received bytes: let the client send more."""
        if not self.has_ended and not self.is_over:
            window, owed = self._sender.stream_window, self._owed
            if owed >= window // 2:
                self._owed = 0
                self.gives += owed
                self._sender.grant(self.number, owed)

    # -- sending ---------------------------------------------------------------------------------

    def answer(self, head: bytes, body: Sequence[bytes], trailers: bytes) -> None:
        """Send a whole answer. Head and trailers are compressed already."""
        if not self.is_over:
            self.trailers = trailers
            self.unsent.extend(filter(None, body))
            self._sender.begin(self, head)

    def begin(self, head: bytes) -> None:
        """Send the head of an answer whose bytes follow."""
        if not self.is_over:
            self._sender.begin(self, head)

    def send(self, pieces: Sequence[bytes]) -> None:
        """Send some bytes of an answer."""
        if not self.is_over:
            self.unsent.extend(filter(None, pieces))
            self._sender.go_on(self)

    def finish(self, trailers: bytes) -> None:
        """End the answer with these trailers."""
        if not self.is_over:
            self.trailers = trailers
            self._sender.go_on(self)

    async def sent(self) -> None:
        """Wait until all bytes are sent and the client can take more, or the stream is over."""
        while not self.is_over and (self.unsent or self._sender.is_full):
            if self._can_go_on is None:
                self._can_go_on = asyncio.Event()
            self._can_go_on.clear()
            await self._can_go_on.wait()

    def left(self) -> None:
        """The reader has stopped working on the request."""
        if self.is_over:
            self._connection.forget(self)

    def wake(self) -> None:
        """Wake `sent` to check again."""
        if self._can_go_on is not None:
            self._can_go_on.set()


class Streams:
    """The streams of a connection, by number, that are not over or whose reader is busy."""

    def __init__(self, most: int) -> None:
        self.last = 0  # the highest number that the client has used
        self._there: dict[int, Stream] = {}
        # Streams that we ended before the client did. The client may send more frames for one until
        # it learns of that, and meanwhile up to `most` others may end and as many begin.
        self._cut: dict[int, None] = {}
        self._most_cut = 2 * most

    def __len__(self) -> int:
        return len(self._there)

    def all(self) -> list[Stream]:
        """The streams as a new list, so that streams may end during iteration."""
        return list(self._there.values())

    def get(self, number: int) -> Stream | None:
        """The stream with this number, or None."""
        return self._there.get(number)

    def find(self, number: int, what: str) -> Stream | None:
        """The stream of a frame; None if it is over but such a frame is still allowed."""
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
        """Remove a stream; returns whether it was there."""
        return self._there.pop(stream.number, None) is not None

    def clear(self) -> None:
        self._there.clear()

    def note_cut(self, number: int, flags: int = 0) -> None:
        """Note that we ended a stream. `flags` are those of its last received frame."""
        if not flags & END_STREAM:
            self._cut[number] = None
            if len(self._cut) > self._most_cut:
                del self._cut[next(iter(self._cut))]

    def forget_cut(self, number: int) -> None:
        """Note that the client has ended the stream too."""
        self._cut.pop(number, None)
