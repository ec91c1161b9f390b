"""What goes to one client: as much as it has said it can take, of each stream and of all.

What does not fit stays with its stream, in the order in which it is to go. Control frames are small
and take no room, so they go at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from sojourn.service.http.limits import Common, Pace
from sojourn.service.http2 import frames
from sojourn.service.http2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    LARGEST_WINDOW,
    Code,
    Http2Error,
    StreamError,
    frame_head,
)
from sojourn.service.http2.heads import NO_TABLE

if TYPE_CHECKING:
    from sojourn.service.http2.stream import Stream

Piece = bytes | memoryview
_FIRST_WINDOW = 2**16 - 1  # that every connection begins with
_FIRST_TABLE = 2**12  # bytes of the table for heads that every connection begins with
_LARGE_BYTES = 2**16  # from here on what goes together is not copied together


class Sender:
    """The sending half of a connection."""

    def __init__(
        self,
        transport: asyncio.Transport,
        common: Common,
        stream_window: int,
        over: Callable[[Stream], None],
    ) -> None:
        """`over` is told of each stream whose answer has been sent."""
        self._transport = transport
        self._common = common
        self._over = over
        self.stream_window = stream_window  # what the client may send on each stream
        self.initial = _FIRST_WINDOW  # what it takes of each stream
        self._takes = _FIRST_WINDOW  # what it takes of all streams together
        self._largest = frames.SMALLEST_FRAME
        self.waiting: dict[Stream, None] = {}  # streams that have more than the client takes
        # Those of them of which it would take more, if it took more of all together: the first is
        # the next one.
        self._queue: dict[Stream, None] = {}
        self.is_full = False  # the client does not read
        self._has_ended = False
        self._change = b""  # of the table for heads, that the next one says
        self.count = 0  # frames with bytes that were sent
        # By TLS what is written at once is encrypted at once, and then nothing tells whether the
        # client reads it.
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        host, port = (transport.get_extra_info("peername") or ("", 0))[:2]
        self.peer = f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"

    def write(self, data: bytes) -> None:
        """Send frames that take no room."""
        if not self._has_ended and not self._transport.is_closing():
            self._transport.write(data)

    def end(self) -> None:
        """Send nothing more. The client may still be read, if it is not by TLS."""
        self._has_ended = True
        if self._transport.is_closing():
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        elif not self.is_full:  # else once it has been read, for then it would seem to stand still
            self._transport.close()

    def resume(self) -> None:
        """The client reads again. What waits has not been slow meanwhile: nobody asked whether
        there is room for it."""
        self.is_full = False
        for stream in self.waiting:
            self._time(stream)

    def grant(self, stream: int, count: int) -> None:
        """Let the client send so many bytes more."""
        self.write(frames.window_update(stream, count))

    # -- streams ---------------------------------------------------------------------------------

    def begin(self, stream: Stream, head: bytes) -> None:
        """Send the head of an answer, and what fits of its bytes."""
        is_all = not stream.unsent and stream.trailers == b""
        flags = END_HEADERS | END_STREAM if is_all else END_HEADERS
        parts = self._head(stream, flags, head)
        if is_all:
            self._write_parts(parts)
            self._over(stream)
        else:
            self._send(stream, parts)

    def go_on(self, stream: Stream) -> None:
        """Send what fits of a stream."""
        self._send(stream, [])

    def _send(self, stream: Stream, parts: list[Piece]) -> None:
        unsent = stream.unsent
        while unsent:
            room = min(stream.takes, self._takes, self._largest)
            if room <= 0:
                break
            # What is together in a frame is read together.
            picked = _picked(unsent, room)
            size = sum(map(len, picked))
            stream.takes -= size
            self._takes -= size
            self.count += 1
            parts.append(frame_head(size, DATA, 0, stream.number))
            parts += picked
        if unsent:
            self._wait(stream)
        elif self.waiting:
            self._wait_no_more(stream)
        is_whole = not unsent and stream.trailers is not None
        if is_whole:
            trailers = stream.trailers or b""
            flags = END_HEADERS | END_STREAM
            parts += self._head(stream, flags, trailers)
        self._write_parts(parts)
        if is_whole:
            self._over(stream)

    def _head(self, stream: Stream, flags: int, block: bytes) -> list[Piece]:
        if self._change:
            block, self._change = self._change + block, b""
        return [frame_head(len(block), HEADERS, flags, stream.number), block]

    def _write_parts(self, parts: list[Piece]) -> None:
        if parts and not self._has_ended and not self._transport.is_closing():
            if sum(map(len, parts)) < _LARGE_BYTES:
                self._transport.write(b"".join(parts))
            elif not self._is_tls:
                self._transport.writelines(parts)
            else:
                for some in _together(parts):
                    self._transport.write(some)

    def _wait(self, stream: Stream) -> None:
        if stream not in self.waiting:
            self.waiting[stream] = None
            self._time(stream)
        if stream.takes > 0:
            self._queue[stream] = None
        else:
            self._queue.pop(stream, None)

    def _wait_no_more(self, stream: Stream) -> None:
        self.waiting.pop(stream, None)
        self._queue.pop(stream, None)

    def _time(self, stream: Stream) -> None:
        stream.pace = Pace(self._common.now, -sum(map(len, stream.unsent)))

    # -- what the client says of its room --------------------------------------------------------

    def more_room(self, count: int, stream: Stream | None) -> None:
        """The client takes so many bytes more; None: of all streams together."""
        if stream is not None:
            if not count:
                raise StreamError(Code.PROTOCOL_ERROR, "a window grows by something")
            if stream.takes + count > LARGEST_WINDOW:
                raise StreamError(Code.FLOW_CONTROL_ERROR, "the window is too large")
            stream.takes += count
            self._continue(stream)
            return
        if not count:
            raise Http2Error(Code.PROTOCOL_ERROR, "a window grows by something")
        if self._takes + count > LARGEST_WINDOW:
            raise Http2Error(Code.FLOW_CONTROL_ERROR, "the window is too large")
        self._takes += count
        while self._queue and self._takes > 0:
            first = next(iter(self._queue))
            del self._queue[first]  # it lets the others go first next time
            self._continue(first)

    def larger_frames(self, size: int) -> None:
        """The client takes frames of this size."""
        if not frames.SMALLEST_FRAME <= size <= frames.LARGEST_FRAME:
            raise Http2Error(Code.PROTOCOL_ERROR, "no frame may have this size")
        self._largest = size

    def resize_table(self, size: int) -> None:
        """The client keeps a table for heads of at most this size. We use none, but it must be told
        if it has to make its own smaller."""
        if size < _FIRST_TABLE:
            self._change = NO_TABLE

    def resize(self, initial: int, streams: list[Stream]) -> None:
        """The client takes so many bytes of each stream, also of those that there are."""
        if initial > LARGEST_WINDOW:
            raise Http2Error(Code.FLOW_CONTROL_ERROR, "the window is too large")
        more, self.initial = initial - self.initial, initial
        for stream in streams:
            if stream.takes + more > LARGEST_WINDOW:
                raise Http2Error(Code.FLOW_CONTROL_ERROR, "the window is too large")
            stream.takes += more
        for stream in list(self.waiting):
            self._continue(stream)

    def _continue(self, stream: Stream) -> None:
        if stream in self.waiting:
            self._send(stream, [])
            stream.wake()

    def forget(self, stream: Stream) -> None:
        """The stream is over: nothing more of it goes."""
        self._wait_no_more(stream)
        stream.unsent.clear()

    @property
    def unread_bytes(self) -> int:
        """What the client has not taken yet, of all streams."""
        waiting = sum(len(piece) for stream in self.waiting for piece in stream.unsent)
        return self._transport.get_write_buffer_size() + waiting

    def too_slow(self, now: float) -> list[Stream]:
        """Streams whose client takes too long to take what is there."""
        limits = self._common.limits
        return [
            stream
            for stream in self.waiting
            if stream.pace is not None
            and stream.pace.is_too_slow(now, -sum(map(len, stream.unsent)), limits)
        ]


def _picked(unsent: deque[Piece], room: int) -> list[Piece]:
    """What fits, taken from the front."""
    picked: list[Piece] = []
    while unsent and room > 0:
        piece = unsent.popleft()
        if len(piece) > room:
            piece = memoryview(piece)
            unsent.appendleft(piece[room:])
            piece = piece[:room]
        picked.append(piece)
        room -= len(piece)
    return picked


def _together(parts: list[Piece]) -> Iterator[bytes]:
    """Large pieces of them."""
    some: list[Piece] = []
    size = 0
    for part in parts:
        some.append(part)
        size += len(part)
        if size >= _LARGE_BYTES:
            yield b"".join(some)
            some, size = [], 0
    yield b"".join(some)
