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
from sojourn.service.http2.frames import END_STREAM, Code, Http2Error, Setting, StreamError
from sojourn.service.http2.heads import Head, HeadReader
from sojourn.service.http2.reading import LARGEST_FRAME, FrameReader
from sojourn.service.http2.sending import Sender
from sojourn.service.http2.stream import Reader, Stream, Streams

_STREAM_WINDOW = 2**20  # what a client may send on a stream before it is told that more is welcome
_WINDOW = 2**24  # the same of all its streams together
_BUSY_SECONDS = 1.0  # a client that has asked within these may be asking again right now
_SECONDS_TO_HEAR = 0.2  # that we go away
_LINGER_SECONDS = 2.0  # so that a client that still sends reads why the connection ends
# Frames that ask for work and say nothing, and streams that break a rule: how many a client may
# send at once, how many more whenever time is looked at, and for each frame of DATA that it gets.
_CREDIT = 10_000
_CREDIT_AT_A_LOOK = 500
_CREDIT_FOR_DATA = 2  # as some clients give room for each, on the stream and on the connection


class Door(Protocol):
    """Whose connections they are."""

    common: Common
    most_streams: int  # of one connection, at once

    def welcome(self, connection: Connection) -> bool:
        """Whether there is room for one more."""

    def left(self, connection: Connection) -> None:
        """A connection has ended."""

    def begun(self, stream: Stream) -> Reader | None:
        """A request has begun. Returns its reader; None if it has been answered."""


class Connection(asyncio.Protocol):
    """One client, from its coming to its going."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._common = door.common
        self._limits = door.common.limits
        self._transport = cast(asyncio.Transport, None)
        self._reader = cast(FrameReader, None)
        self.sender = cast(Sender, None)
        self._heads = HeadReader(self._limits.header_bytes)
        self._streams = Streams(door.most_streams)
        self._gives = 2**16 - 1  # what the client may still send
        self._owed = 0
        self._credit = _CREDIT
        self._idle_since = self._left_since = self._common.now
        self._is_going = False  # no new streams
        self.is_over = False
        self._unread: Pace | None = None
        self._handlers: dict[int, Callable[[int, int, bytes], None]] = {
            frames.RST_STREAM: self._on_reset,
            frames.SETTINGS: self._on_settings,
            frames.PUSH_PROMISE: self._on_push,
            frames.PING: self._on_ping,
            frames.WINDOW_UPDATE: self._on_window,
        }

    # -- the transport's calls -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._idle_since = self._common.now
        self._reader = FrameReader(self, self._common, self._heads.most_bytes)
        self.sender = Sender(self._transport, self._common, _STREAM_WINDOW, self._finished)
        if not self._door.welcome(self):
            self._end(Code.ENHANCE_YOUR_CALM, "the server has as many connections as it takes")
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_over = True
        for stream in self._streams.all():
            self._lose(stream)
        self._streams.clear()
        self._door.left(self)

    def data_received(self, data: bytes) -> None:
        if self.is_over:
            return
        try:
            self._reader.feed(data)
        except Http2Error as error:
            self._end(error.code, str(error))

    def pause_writing(self) -> None:
        """The client does not read: what it asks for meanwhile would only have to wait."""
        self.sender.is_full = True
        self._unread = Pace(self._common.now, -self._transport.get_write_buffer_size())
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.sender.resume()
        self._unread = None
        self._left_since = self._common.now
        if self._reader.since is not None:
            self._reader.since = self._common.now
        self._transport.resume_reading()
        if self.is_over:
            self._leave()
        for stream in self._streams.all():
            stream.wake()

    def introduced(self) -> None:
        # Not before: who speaks HTTP/1 would take it for a broken answer.
        mine = {
            Setting.MAX_CONCURRENT_STREAMS: self._door.most_streams,
            Setting.INITIAL_WINDOW_SIZE: _STREAM_WINDOW,
            Setting.MAX_FRAME_SIZE: LARGEST_FRAME,
            Setting.MAX_HEADER_LIST_SIZE: self._limits.header_bytes,
        }
        self.sender.write(frames.settings(mine))
        self.sender.grant(0, _WINDOW - self._gives)
        self._gives = _WINDOW

    def not_http2(self, data: bytes) -> None:
        if data[:1].isalpha():
            self.sender.write(frames.NOT_HTTP2)
            self._leave()
        else:
            self._end(Code.PROTOCOL_ERROR, "this is not HTTP/2")

    # -- bytes of a request ----------------------------------------------------------------------

    def begin_data(self, number: int, flags: int, length: int) -> Stream | None:
        if not length and not flags & END_STREAM:
            self._spend()
        self._gives -= length
        if self._gives < 0:
            raise Http2Error(Code.FLOW_CONTROL_ERROR, "more than the window takes")
        self._owed += length
        if self._owed >= _WINDOW // 2:
            self.sender.grant(0, self._owed)
            self._gives += self._owed
            self._owed = 0
        stream = self._streams.find(number, "bytes")
        if stream is None or stream.is_over:
            return None
        if stream.has_ended:
            self._fault(number, StreamError(Code.STREAM_CLOSED, "it has ended"))
            return None
        stream.gives -= length
        if stream.gives < 0:
            self._fault(number, StreamError(Code.FLOW_CONTROL_ERROR, "more than the window takes"))
            return None
        return stream

    def data(self, stream: Stream, piece: bytes, padding: int, is_last: bool) -> None:
        if not stream.is_over:
            if piece or padding:
                stream.read(piece, padding)
            if is_last:
                self._ended(stream)

    def _ended(self, stream: Stream) -> None:
        """The client has said all of its request."""
        stream.has_ended = True
        if stream.head.length not in (None, stream.came) and stream.reader is not None:
            error = StreamError(Code.PROTOCOL_ERROR, "it has not the length that was said")
            self._fault(stream.number, error)
        elif stream.reader is not None:
            stream.reader.end()

    # -- heads -----------------------------------------------------------------------------------

    def head(self, flags: int, number: int, block: bytes) -> None:
        try:
            if number <= self._streams.last:
                self._on_trailers(flags, number, block)
                return
            self._streams.last = number
            head = self._heads.read(block)
            if self._is_going or len(self._streams) >= self._door.most_streams:
                raise StreamError(Code.REFUSED_STREAM, "there are as many streams as it takes")
        except StreamError as error:
            self._fault(number, error, flags)
        else:
            self._begin(number, head, flags)

    def _begin(self, number: int, head: Head, flags: int) -> None:
        stream = Stream(number, head, self)
        stream.has_ended = bool(flags & END_STREAM)
        self._streams.add(stream)
        stream.reader = self._door.begun(stream)
        if stream.has_ended and not stream.is_over:
            self._ended(stream)

    def _on_trailers(self, flags: int, number: int, block: bytes) -> None:
        stream = self._streams.find(number, "a head")
        self._heads.read_trailers(block)
        if stream is None or stream.is_over:
            return
        if stream.has_ended:
            raise StreamError(Code.STREAM_CLOSED, "it has ended")
        if not flags & END_STREAM:
            raise StreamError(Code.PROTOCOL_ERROR, "behind a trailer comes nothing")
        self._ended(stream)

    # -- the other frames ------------------------------------------------------------------------

    def frame(self, kind: int, flags: int, number: int, content: bytes) -> None:
        self._spend()
        try:
            frames.check(kind, number, content)
            handler = self._handlers.get(kind)
            if handler is not None:  # the others ask for nothing
                handler(flags, number, content)
        except StreamError as error:
            self._reset(number, error)

    def _spend(self, count: int = 1) -> None:
        self._credit -= count
        if self._credit < 0:
            raise Http2Error(Code.ENHANCE_YOUR_CALM, "too many frames that say nothing")

    def _on_reset(self, flags: int, number: int, content: bytes) -> None:
        stream = self._streams.find(number, "a reset")
        self._streams.forget_cut(number)
        if stream is not None and not stream.is_over:
            stream.has_ended = True
            self._over(stream)
            self._lose(stream)

    def _on_settings(self, flags: int, number: int, content: bytes) -> None:
        if flags & frames.ACK:
            if content:
                raise Http2Error(Code.FRAME_SIZE_ERROR, "it has no content")
            return
        # Of one that is there twice the last counts: each takes a look at all streams.
        for name, value in dict(frames.settings_in(content)).items():
            if name == Setting.INITIAL_WINDOW_SIZE:
                # All that wait are looked at, and what goes of them was not asked for one by one.
                self._spend(len(self.sender.waiting))
                sent = self.sender.count
                self.sender.resize(value, self._streams.all())
                self.sender.count = sent
            elif name == Setting.MAX_FRAME_SIZE:
                self.sender.larger_frames(value)
            elif name == Setting.HEADER_TABLE_SIZE:
                self.sender.resize_table(value)
            elif name == Setting.ENABLE_PUSH and value > 1:
                raise Http2Error(Code.PROTOCOL_ERROR, "push is on or off")
        self.sender.write(frames.frame(frames.SETTINGS, frames.ACK, 0))

    def _on_push(self, flags: int, number: int, content: bytes) -> None:
        raise Http2Error(Code.PROTOCOL_ERROR, "a client must not push")

    def _on_ping(self, flags: int, number: int, content: bytes) -> None:
        if not flags & frames.ACK:
            self.sender.write(frames.frame(frames.PING, frames.ACK, 0, content))

    def _on_window(self, flags: int, number: int, content: bytes) -> None:
        count = frames.number_in(content)
        if not number:
            self.sender.more_room(count, None)
            return
        stream = self._streams.find(number, "a window")
        if stream is not None and not stream.is_over:
            self.sender.more_room(count, stream)

    # -- streams ---------------------------------------------------------------------------------

    def _finished(self, stream: Stream) -> None:
        """A stream has been answered."""
        if not stream.has_ended:  # the client need not send the rest
            self._streams.note_cut(stream.number)
            self.sender.write(frames.reset(stream.number, Code.NO_ERROR))
        self._over(stream)

    def _fault(self, number: int, error: StreamError, flags: int = 0) -> None:
        """The client breaks a rule of a stream, which ends it. `flags`: of its head, if it has not
        begun."""
        self._spend()
        self._reset(number, error, flags)

    def _reset(self, number: int, error: StreamError, flags: int = 0) -> None:
        if number > self._streams.last:
            raise Http2Error(error.code, str(error))
        self.sender.write(frames.reset(number, error.code))
        stream = self._streams.get(number)
        if stream is None:
            self._streams.note_cut(number, flags)
        elif not stream.is_over:
            if not stream.has_ended:
                self._streams.note_cut(number)
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
        if self._streams.remove(stream) and not self._streams:
            self._idle_since = self._common.now
            if self._is_going:
                self._leave()

    # -- ends ------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Begin no more streams, and leave when those that there are have been answered. What the
        client has sent before it hears of it is answered too."""
        if self.is_over:
            return
        is_busy = self._streams or self._common.now - self._idle_since < _BUSY_SECONDS
        self._go_in(_SECONDS_TO_HEAR if is_busy else 0)

    def _go_in(self, seconds: float) -> None:
        self.sender.write(frames.going_away(frames.LAST_STREAM, Code.NO_ERROR))
        asyncio.get_running_loop().call_later(seconds, self._go)

    def _go(self) -> None:
        if not self.is_over and not self._is_going:
            self._is_going = True
            self.sender.write(frames.going_away(self._streams.last, Code.NO_ERROR))
            if not self._streams:
                self._leave()

    def _leave(self) -> None:
        """Say no more. What the client still sends is thrown away for a moment: else the kernel
        takes back what the client has not read yet."""
        self.is_over = True
        self._left_since = self._common.now
        self.sender.end()

    def _end(self, code: Code, why: str) -> None:
        """Say why, and read no more."""
        self.sender.write(frames.going_away(self._streams.last, code, why))
        for stream in self._streams.all():
            self._lose(stream)
        self._leave()

    def abort(self) -> None:
        """End it now."""
        self._transport.abort()

    @property
    def unread_bytes(self) -> int:
        """Of answers that the client has not taken yet."""
        return self.sender.unread_bytes

    def look(self, now: float) -> None:
        """Cut the client off if it takes too long."""
        limits = self._limits
        more = _CREDIT_AT_A_LOOK + _CREDIT_FOR_DATA * self.sender.count
        self._credit = min(_CREDIT, self._credit + more)
        self.sender.count = 0
        left = self._transport.get_write_buffer_size()
        if self._unread is not None:
            if self._unread.is_too_slow(now, -left, limits):
                self.abort()
            return
        if self.is_over:
            seconds = now - self._left_since
            if seconds > limits.header_seconds:
                self.abort()
            elif seconds > _LINGER_SECONDS and not left:
                self._transport.close()
            return
        for stream in self.sender.too_slow(now):
            self._reset(stream.number, StreamError(Code.CANCEL, "the client does not read"))
        since = self._reader.since
        if since is not None and now - since > limits.header_seconds:
            self._end(Code.ENHANCE_YOUR_CALM, f"a head takes at most {limits.header_seconds:g} s")
        elif not self._streams and now - self._idle_since > limits.idle_seconds:
            self._go_in(_SECONDS_TO_HEAR)
