"""One client's connection: bytes to streams, and what a client may take of the server in bounds.

Everything runs on the server's loop. Time is looked at by the door, once in a while for all
connections together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from sojourn.service.http.limits import Common, Pace
from sojourn.service.http2 import frames
from sojourn.service.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEAD_BYTES,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    WITH_PRIORITY,
    Code,
    Http2Error,
    Setting,
    StreamError,
    frame,
    head_at,
)
from sojourn.service.http2.heads import Head, HeadReader
from sojourn.service.http2.sending import Sender
from sojourn.service.http2.stream import Reader, Stream

_STREAM_WINDOW = 2**20  # what a client may send on a stream before it is told that more is welcome
_WINDOW = 2**24  # the same of all its streams together
_LARGEST_FRAME = 2**18
_PRIORITY_BYTES = 5
_SECONDS_TO_HEAR = 0.2  # that we go away
_MOST_CUT = 1000  # streams that we have ended before the client had, and may hear of still
# Frames that ask for work and say nothing: how many a client may send at once, and how many more
# whenever time is looked at.
_CREDIT = 10_000
_CREDIT_AT_A_LOOK = 500
_NOT_HTTP2 = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n"
    b"This port speaks gRPC, which is HTTP/2.\n"
)


class Door(Protocol):
    """Whose connections they are."""

    common: Common
    most_streams: int  # of one connection, at once

    def welcome(self, connection: Connection) -> bool:
        """Whether there is room for one more."""

    def left(self, connection: Connection) -> None:
        """It is no more."""

    def begun(self, stream: Stream) -> Reader | None:
        """Somebody asks for something. None: it has been answered."""


class Connection(asyncio.Protocol):
    """From the client's coming to its going."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._common = door.common
        self._limits = door.common.limits
        self._transport = cast(asyncio.Transport, None)
        self.sender = cast(Sender, None)
        self._heads = HeadReader(self._limits.header_bytes)
        self._streams: dict[int, Stream] = {}  # also those whose reader still works
        self._last = 0  # the highest stream that the client has begun
        self._cut: dict[int, None] = {}
        self._gives = 2**16 - 1  # what the client may still send
        self._owed = 0
        self._credit = _CREDIT
        self._idle_since = self._common.now
        self._whole_since = self._common.now  # since then there has been no whole frame
        self._is_introduced = False  # the client has said that it speaks HTTP/2 ...
        self._is_greeted = False  # ... and of its settings
        self._is_going = False  # no new streams
        self._is_over = False
        self._unread: Pace | None = None
        # What has come of a frame that is not whole, and what it takes to go on.
        self._tail = bytearray()
        self._needed = 0
        self._data: tuple[Stream | None, int, int] | None = None  # bytes that go to a stream
        self._block: tuple[int, int, bytearray] | None = None  # a head that is not whole
        self._handlers: dict[int, Callable[[int, int, bytes], None]] = {
            HEADERS: self._on_headers,
            PRIORITY: self._on_priority,
            RST_STREAM: self._on_reset,
            SETTINGS: self._on_settings,
            PUSH_PROMISE: self._on_push,
            PING: self._on_ping,
            GOAWAY: self._on_going_away,
            WINDOW_UPDATE: self._on_window,
            CONTINUATION: self._on_continuation,
        }

    # -- the transport's calls -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._whole_since = self._idle_since = self._common.now
        self.sender = Sender(self._transport, self._common, _STREAM_WINDOW, self._finished)
        if not self._door.welcome(self):
            self._end(Code.ENHANCE_YOUR_CALM, "the server has as many connections as it takes")
            return
        mine = {
            Setting.MAX_CONCURRENT_STREAMS: self._door.most_streams,
            Setting.INITIAL_WINDOW_SIZE: _STREAM_WINDOW,
            Setting.MAX_FRAME_SIZE: _LARGEST_FRAME,
            Setting.MAX_HEADER_LIST_SIZE: self._limits.header_bytes,
        }
        self.sender.write(frames.settings(mine))
        self.sender.grant(0, _WINDOW - self._gives)
        self._gives = _WINDOW

    def connection_lost(self, error: Exception | None) -> None:
        self._is_over = True
        self._tail.clear()
        for stream in list(self._streams.values()):
            self._lose(stream)
        self._streams.clear()
        self._door.left(self)

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        try:
            self._receive(data)
        except Http2Error as error:
            self._end(error.code, str(error))

    def pause_writing(self) -> None:
        self.sender.is_full = True
        self._unread = Pace(self._common.now, -self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self.sender.is_full = False
        self._unread = None
        for stream in list(self._streams.values()):
            stream.wake()

    # -- frames ----------------------------------------------------------------------------------

    def _receive(self, data: bytes) -> None:
        if self._tail:
            self._tail += data
            if len(self._tail) < self._needed:
                return
            data = bytes(self._tail)
            self._tail.clear()
        at, end = 0, len(data)
        if not self._is_introduced:
            if not PREFACE.startswith(data[: len(PREFACE)]):
                self._say_what_it_is(data)
                return
            if end < len(PREFACE):
                self._keep(data, 0, len(PREFACE))
                return
            self._is_introduced = True
            at = len(PREFACE)
        while at < end and not self._is_over:
            if self._data is not None:
                at = self._go_on_with_data(data, at)
                continue
            if end - at < HEAD_BYTES:
                self._keep(data, at, HEAD_BYTES)
                return
            length, kind, flags, number = head_at(data, at)
            if length > _LARGEST_FRAME:
                raise Http2Error(Code.FRAME_SIZE_ERROR, f"a frame has at most {_LARGEST_FRAME}")
            if not self._is_greeted:
                if kind != SETTINGS or flags & ACK:
                    raise Http2Error(Code.PROTOCOL_ERROR, "the first frame tells the settings")
                self._is_greeted = True
            if self._block is not None and kind != CONTINUATION:
                raise Http2Error(Code.PROTOCOL_ERROR, "a head came in two parts, with more between")
            if kind == DATA and not flags & PADDED:
                at += HEAD_BYTES
                self._data = self._begin_data(number, flags, length), length, flags
                if not length:
                    self._go_on_with_data(b"", 0)
                continue
            if end - at < HEAD_BYTES + length:
                if kind in (HEADERS, CONTINUATION) and length > self._heads.most_bytes:
                    raise Http2Error(Code.ENHANCE_YOUR_CALM, "the head is too large")
                self._keep(data, at, HEAD_BYTES + length)
                return
            at += HEAD_BYTES
            content = data[at : at + length]
            at += length
            try:
                self._take(kind, flags, number, content)
            except StreamError as error:
                self._reset(number, error)
            if self._block is None:
                self._whole_since = self._common.now

    def _keep(self, data: bytes, at: int, needed: int) -> None:
        """What has come of a frame that is not whole."""
        self._tail += memoryview(data)[at:]
        self._needed = needed

    def _take(self, kind: int, flags: int, number: int, content: bytes) -> None:
        if kind == DATA:
            stream = self._begin_data(number, flags, len(content))
            content = frames.without_padding(content)
            self._data = stream, len(content), flags
            self._go_on_with_data(content, 0)
            return
        if kind != HEADERS:
            self._spend(1)
        handler = self._handlers.get(kind)
        if handler is not None:  # others are to be passed over
            handler(flags, number, content)

    def _spend(self, count: int) -> None:
        self._credit -= count
        if self._credit < 0:
            raise Http2Error(Code.ENHANCE_YOUR_CALM, "too many frames that say nothing")

    def _say_what_it_is(self, data: bytes) -> None:
        if data[:1].isalpha():
            self._transport.write(_NOT_HTTP2)
            self._leave()
            return
        raise Http2Error(Code.PROTOCOL_ERROR, "this is not HTTP/2")

    # -- bytes of a request ----------------------------------------------------------------------

    def _begin_data(self, number: int, flags: int, length: int) -> Stream | None:
        """The stream that they are for; None if they are for nobody."""
        if not length:
            self._spend(1)
        self._gives -= length
        if self._gives < 0:
            raise Http2Error(Code.FLOW_CONTROL_ERROR, "more than the window takes")
        self._owed += length
        if self._owed >= _WINDOW // 2:
            self.sender.grant(0, self._owed)
            self._gives += self._owed
            self._owed = 0
        stream = self._known(number, "bytes")
        if stream is None or stream.is_over:
            return None
        if stream.has_ended:
            self._reset(number, StreamError(Code.STREAM_CLOSED, "it has ended"))
            return None
        stream.gives -= length
        if stream.gives < 0:
            self._reset(number, StreamError(Code.FLOW_CONTROL_ERROR, "more than the window takes"))
            return None
        return stream

    def _go_on_with_data(self, data: bytes, at: int) -> int:
        """Hand on what is there of them; returns where the next frame begins."""
        assert self._data is not None
        stream, left, flags = self._data
        piece = data if at == 0 and len(data) <= left else data[at : at + left]
        left -= len(piece)
        self._data = (stream, left, flags) if left else None
        if stream is not None and not stream.is_over:
            if piece:
                stream.read(piece)
            if not left and flags & END_STREAM:
                self._ended(stream)
        return at + len(piece)

    def _ended(self, stream: Stream) -> None:
        """The client has said all of its request."""
        stream.has_ended = True
        if stream.head.length not in (None, stream.came) and stream.reader is not None:
            error = StreamError(Code.PROTOCOL_ERROR, "it has not the length that was said")
            self._reset(stream.number, error)
        elif stream.reader is not None:
            stream.reader.end()

    # -- heads -----------------------------------------------------------------------------------

    def _on_headers(self, flags: int, number: int, content: bytes) -> None:
        if not number % 2:
            raise Http2Error(Code.PROTOCOL_ERROR, "clients begin streams of odd numbers")
        if flags & PADDED:
            content = frames.without_padding(content)
        if flags & WITH_PRIORITY:
            if len(content) < _PRIORITY_BYTES:
                raise Http2Error(Code.FRAME_SIZE_ERROR, "the frame is too small")
            content = content[_PRIORITY_BYTES:]
        if flags & END_HEADERS:
            self._on_block(flags, number, content)
        else:
            self._block = flags, number, bytearray(content)

    def _on_continuation(self, flags: int, number: int, content: bytes) -> None:
        if self._block is None or self._block[1] != number:
            raise Http2Error(Code.PROTOCOL_ERROR, "no head is to be continued")
        first, _, block = self._block
        block += content
        if len(block) > self._heads.most_bytes:
            raise Http2Error(Code.ENHANCE_YOUR_CALM, "the head is too large")
        if flags & END_HEADERS:
            self._block = None
            self._on_block(first, number, bytes(block))

    def _on_block(self, flags: int, number: int, block: bytes) -> None:
        if number <= self._last:
            self._on_trailers(flags, number, block)
            return
        self._last = number
        try:
            head = self._heads.read(block)
        except StreamError as error:
            self._note_cut(number, flags)
            self.sender.write(frames.reset(number, error.code))
            return
        if self._is_going or len(self._streams) >= self._door.most_streams:
            self._note_cut(number, flags)
            self.sender.write(frames.reset(number, Code.REFUSED_STREAM))
            return
        self._begin(number, head, flags)

    def _begin(self, number: int, head: Head, flags: int) -> None:
        stream = Stream(number, head, self)
        stream.has_ended = bool(flags & END_STREAM)
        self._streams[number] = stream
        stream.reader = self._door.begun(stream)
        if stream.has_ended and not stream.is_over:
            self._ended(stream)

    def _on_trailers(self, flags: int, number: int, block: bytes) -> None:
        stream = self._known(number, "a head")
        self._heads.read_trailers(block)
        if stream is None or stream.is_over:
            return
        if stream.has_ended:
            raise StreamError(Code.STREAM_CLOSED, "it has ended")
        if not flags & END_STREAM:
            raise StreamError(Code.PROTOCOL_ERROR, "behind a trailer comes nothing")
        self._ended(stream)

    # -- the other frames ------------------------------------------------------------------------

    def _on_priority(self, flags: int, number: int, content: bytes) -> None:
        if not number:
            raise Http2Error(Code.PROTOCOL_ERROR, "a stream has priority, not the connection")
        if len(content) != _PRIORITY_BYTES:
            raise StreamError(Code.FRAME_SIZE_ERROR, "this frame has five bytes")

    def _on_reset(self, flags: int, number: int, content: bytes) -> None:
        frames.number_in(content)
        stream = self._known(number, "a reset")
        self._cut.pop(number, None)
        if stream is not None and not stream.is_over:
            stream.has_ended = True
            self._over(stream)
            self._lose(stream)

    def _on_settings(self, flags: int, number: int, content: bytes) -> None:
        if number:
            raise Http2Error(Code.PROTOCOL_ERROR, "settings are the connection's")
        if flags & ACK:
            if content:
                raise Http2Error(Code.FRAME_SIZE_ERROR, "it has no content")
            return
        for name, value in frames.settings_in(content):
            if name == Setting.INITIAL_WINDOW_SIZE:
                self.sender.resize(value, list(self._streams.values()))
            elif name == Setting.MAX_FRAME_SIZE:
                self.sender.larger_frames(value)
            elif name == Setting.ENABLE_PUSH and value > 1:
                raise Http2Error(Code.PROTOCOL_ERROR, "push is on or off")
        self.sender.write(frame(SETTINGS, ACK, 0))

    def _on_push(self, flags: int, number: int, content: bytes) -> None:
        raise Http2Error(Code.PROTOCOL_ERROR, "a client promises nothing")

    def _on_ping(self, flags: int, number: int, content: bytes) -> None:
        if number:
            raise Http2Error(Code.PROTOCOL_ERROR, "a ping is the connection's")
        if len(content) != 8:
            raise Http2Error(Code.FRAME_SIZE_ERROR, "this frame has eight bytes")
        if not flags & ACK:
            self.sender.write(frame(PING, ACK, 0, content))

    def _on_going_away(self, flags: int, number: int, content: bytes) -> None:
        if number:
            raise Http2Error(Code.PROTOCOL_ERROR, "it is the connection that goes away")
        if len(content) < 8:
            raise Http2Error(Code.FRAME_SIZE_ERROR, "this frame has eight bytes or more")

    def _on_window(self, flags: int, number: int, content: bytes) -> None:
        count = frames.number_in(content)
        if not number:
            self.sender.more_room(count, None)
            return
        stream = self._known(number, "a window")
        if stream is not None and not stream.is_over:
            self.sender.more_room(count, stream)

    # -- streams ---------------------------------------------------------------------------------

    def _known(self, number: int, what: str) -> Stream | None:
        """The stream of a frame; None if it is over and may hear of it still."""
        stream = self._streams.get(number)
        if stream is not None or number in self._cut:
            return stream
        if not number or number > self._last or not number % 2:
            raise Http2Error(Code.PROTOCOL_ERROR, f"{what} for a stream that is not there")
        if what in ("bytes", "a head"):
            raise Http2Error(Code.STREAM_CLOSED, f"{what} for a stream that has ended")
        return None

    def _finished(self, stream: Stream, by_an_answer: bool) -> None:
        """We have ended a stream."""
        if not stream.has_ended:
            self._note_cut(stream.number, 0)
            if by_an_answer:  # the client need not send the rest
                self.sender.write(frames.reset(stream.number, Code.NO_ERROR))
        self._over(stream)

    def _reset(self, number: int, error: StreamError) -> None:
        stream = self._streams.get(number)
        self.sender.write(frames.reset(number, error.code))
        if stream is not None and not stream.is_over:
            if not stream.has_ended:
                self._note_cut(number, 0)
            self._over(stream)
            self._lose(stream)

    def _lose(self, stream: Stream) -> None:
        stream.is_over = True
        stream.wake()
        if stream.reader is not None:
            stream.reader.lost()
            self.forget(stream)

    def _over(self, stream: Stream) -> None:
        stream.is_over = True
        self.sender.forget(stream)
        stream.wake()
        self.forget(stream)

    def forget(self, stream: Stream) -> None:
        """Count a stream no more, if it is over and nobody works on it: one that the client has
        left may still take what a stream takes."""
        if stream.reader is not None and stream.reader.is_busy():
            return
        if self._streams.pop(stream.number, None) is not None and not self._streams:
            self._idle_since = self._common.now
            if self._is_going:
                self._leave()

    def _note_cut(self, number: int, flags: int) -> None:
        if not flags & END_STREAM:
            self._cut[number] = None
            if len(self._cut) > _MOST_CUT:
                del self._cut[next(iter(self._cut))]

    # -- ends ------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Begin no more streams, and leave when those that there are have been answered. What the
        client has sent before it hears of it is answered too."""
        if self._is_over:
            return
        self.sender.write(frames.going_away(frames.LAST_STREAM, Code.NO_ERROR))
        loop = asyncio.get_running_loop()
        loop.call_later(_SECONDS_TO_HEAR if self._streams else 0, self._go)

    def _go(self) -> None:
        if not self._is_over and not self._is_going:
            self._is_going = True
            self.sender.write(frames.going_away(self._last, Code.NO_ERROR))
            if not self._streams:
                self._leave()

    def _leave(self) -> None:
        self._is_over = True
        self._whole_since = self._common.now
        self._transport.close()

    def _end(self, code: Code, why: str) -> None:
        """Say why, and read no more."""
        self.sender.write(frames.going_away(self._last, code, why))
        for stream in list(self._streams.values()):
            self._lose(stream)
        self._leave()

    def abort(self) -> None:
        """End it now."""
        self._transport.abort()

    def look(self, now: float) -> None:
        """Cut the client off if it takes too long."""
        limits, seconds = self._limits, now - self._whole_since
        self._credit = min(_CREDIT, self._credit + _CREDIT_AT_A_LOOK + self.sender.count)
        self.sender.count = 0
        if self._is_over:
            if seconds > limits.header_seconds:
                self.abort()
            return
        if self._unread is not None:
            left = self._transport.get_write_buffer_size()
            if self._unread.is_too_slow(now, -left, limits):
                self.abort()
            return
        for stream in self.sender.too_slow(now):
            self._reset(stream.number, StreamError(Code.CANCEL, "the client does not read"))
        is_in_a_head = bool(self._tail) or self._block is not None or not self._is_greeted
        if is_in_a_head and seconds > limits.header_seconds:
            self._end(Code.ENHANCE_YOUR_CALM, f"a head takes at most {limits.header_seconds:g} s")
        elif not self._streams and now - self._idle_since > limits.idle_seconds:
            self._end(Code.NO_ERROR, "idle")
