"""The sending half of a connection: sends what the windows of stream and connection allow.

The rest waits in its stream, in order. Control frames are not subject to flow control, so they are
sent at once.
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
_FIRST_WINDOW = 2**16 - 1  # bytes, of every new connection
_FIRST_TABLE = 2**12  # bytes of the compression table of every new connection
_LARGE_BYTES = 2**16  # from this size on the parts of a write are not joined by copying


class Sender:
    """Writes the frames of a connection, within the client's flow control."""

    def __init__(
        self,
        transport: asyncio.Transport,
        common: Common,
        stream_window: int,
        over: Callable[[Stream], None],
    ) -> None:
        """`over` is called for each stream whose answer has been sent."""
        self._transport = transport
        self._common = common
        self._over = over
        self.stream_window = stream_window  # bytes that the client may send on each stream
        self.initial = _FIRST_WINDOW  # window of each new stream, in bytes to the client
        self._takes = _FIRST_WINDOW  # window of the connection, in bytes to the client
        self._largest = frames.SMALLEST_FRAME
        self.waiting: dict[Stream, None] = {}  # streams with more data than the windows allow
        # Those of the waiting streams that only the connection's window holds up; the first is
        # served next.
        self._queue: dict[Stream, None] = {}
        self.is_full = False  # the write buffer is full: the client does not read
        self._has_ended = False
        self._change = b""  # of the compression table's size, announced with the next head
        self.count = 0  # DATA frames sent
        # With TLS, one write is encrypted as a whole, and then nothing shows whether the client
        # reads it; so large writes are split.
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        host, port = (transport.get_extra_info("peername") or ("", 0))[:2]
        self.peer = f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"

    def write(self, data: bytes) -> None:
        """Send frames that are not subject to flow control."""
        if not self._has_ended and not self._transport.is_closing():
            self._transport.write(data)

    def end(self) -> None:
        """Send nothing more. Without TLS, receiving from the client is still possible."""
        self._has_ended = True
        if self._transport.is_closing():
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        elif not self.is_full:  # else closed after the client has read: it would seem stalled
            self._transport.close()

    def resume(self) -> None:
        """Continue when the client reads again. The stall timers of waiting streams restart,
        because meanwhile the client's WINDOW_UPDATEs were not read."""
        self.is_full = False
        for stream in self.waiting:
            self._time(stream)

    def grant(self, stream: int, count: int) -> None:
        """Let the client send `count` more bytes."""
        self.write(frames.window_update(stream, count))

    # -- streams ---------------------------------------------------------------------------------

    def begin(self, stream: Stream, head: bytes) -> None:
        """Send the head of an answer, and as many of its bytes as the windows allow."""
        is_all = not stream.unsent and stream.trailers == b""
        flags = END_HEADERS | END_STREAM if is_all else END_HEADERS
        parts = self._head(stream, flags, head)
        if is_all:
            self._write_parts(parts)
            self._over(stream)
        else:
            self._send(stream, parts)

    def go_on(self, stream: Stream) -> None:
        """Send as many unsent bytes of a stream as the windows allow."""
        self._send(stream, [])

    def _send(self, stream: Stream, parts: list[Piece]) -> None:
        unsent = stream.unsent
        while unsent:
            room = min(stream.takes, self._takes, self._largest)
            if room <= 0:
                break
            # Pieces share a frame, because the client reads a frame as one.
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

    # -- flow control ----------------------------------------------------------------------------

    def more_room(self, count: int, stream: Stream | None) -> None:
        """Enlarge the window of a stream, or with None that of the connection, by `count` bytes."""
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
            del self._queue[first]  # goes to the end of the queue, if more is left
            self._continue(first)

    def larger_frames(self, size: int) -> None:
        """Send frames of up to this size, as the client's settings allow."""
        if not frames.SMALLEST_FRAME <= size <= frames.LARGEST_FRAME:
            raise Http2Error(Code.PROTOCOL_ERROR, "no frame may have this size")
        self._largest = size

    def resize_table(self, size: int) -> None:
        """Handle the client's limit for its compression table. We do not use the table, but HPACK
        requires us to confirm a smaller size."""
        if size < _FIRST_TABLE:
            self._change = NO_TABLE

    def resize(self, initial: int, streams: list[Stream]) -> None:
        """Set the client's initial window, and adjust the windows of existing streams by it."""
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
        """Drop the unsent bytes of a stream that is over."""
        self._wait_no_more(stream)
        stream.unsent.clear()

    @property
    def unread_bytes(self) -> int:
        """Bytes that the client has not taken yet, of all streams."""
        waiting = sum(len(piece) for stream in self.waiting for piece in stream.unsent)
        return self._transport.get_write_buffer_size() + waiting

    def too_slow(self, now: float) -> list[Stream]:
        """Waiting streams whose bytes the client takes too slowly."""
        limits = self._common.limits
        return [
            stream
            for stream in self.waiting
            if stream.pace is not None
            and stream.pace.is_too_slow(now, -sum(map(len, stream.unsent)), limits)
        ]


def _picked(unsent: deque[Piece], room: int) -> list[Piece]:
    """Take up to `room` bytes from the front of `unsent`."""
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
    """Join the parts into large pieces."""
    some: list[Piece] = []
    size = 0
    for part in parts:
        some.append(part)
        size += len(part)
        if size >= _LARGE_BYTES:
            yield b"".join(some)
            some, size = [], 0
    yield b"".join(some)
