"""One client's connection: turns bytes into streams, and limits what the client may use.

Everything runs on the server's loop. The listener checks the timeouts of all connections together,
periodically.
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

_STREAM_WINDOW = 2**20  # bytes that a client may send on one stream before a WINDOW_UPDATE
_WINDOW = 2**24  # the same for all its streams together
_BUSY_SECONDS = 1.0  # a client whose last request is no older may be sending another
_SECONDS_TO_HEAR = 0.2  # between announcing the end with GOAWAY and refusing new streams
_LINGER_SECONDS = 2.0  # before closing, so that a client still sending reads why we close
# Limit on frames that cost work but carry no data, and on streams that break a rule: how many a
# client may send at once, how many more at each periodic check, and for each DATA frame sent to it.
_CREDIT = 10_000
_CREDIT_AT_A_LOOK = 500
_CREDIT_FOR_DATA = 2  # some clients send two WINDOW_UPDATEs for each: stream and connection


class Door(Protocol):
    """The owner of the connections."""

    common: Common
    most_streams: int  # of one connection, at the same time

    def welcome(self, connection: Connection) -> bool:
        """Register a new connection; returns whether there is room for it."""

    def left(self, connection: Connection) -> None:
        """Called when a connection has ended."""

    def begun(self, stream: Stream) -> Reader | None:
        """Called when a request begins. Returns its reader; None if it is answered already."""


class Connection(asyncio.Protocol):
    """The protocol of one client, from connect to disconnect."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._common = door.common
        self._limits = door.common.limits
        self._transport = cast(asyncio.Transport, None)
        self._reader = cast(FrameReader, None)
        self.sender = cast(Sender, None)
        self._heads = HeadReader(self._limits.header_bytes)
        self._streams = Streams(door.most_streams)
        self._gives = 2**16 - 1  # bytes that the client may still send, on all streams
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
        """Pause reading while the client does not read: its new requests would only wait."""
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
        # Not earlier: an HTTP/1 client would take the frames for a broken answer.
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
        """Pass on that the client has sent its whole request, after checking its length."""
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
            if handler is not None:  # other types need no action
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
        # Apply only the last of duplicates: applying one may go through all streams.
        for name, value in dict(frames.settings_in(content)).items():
            if name == Setting.INITIAL_WINDOW_SIZE:
                # Costs work for each waiting stream, and the DATA it releases earns no credit.
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
        """Close a stream whose answer has been sent."""
        if not stream.has_ended:  # tell the client not to send the rest
            self._streams.note_cut(stream.number)
            self.sender.write(frames.reset(stream.number, Code.NO_ERROR))
        self._over(stream)

    def _fault(self, number: int, error: StreamError, flags: int = 0) -> None:
        """End a stream on which the client broke a rule. `flags` are those of the stream's head, if
        it has not begun."""
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
        """Remove a stream that is over, unless its reader is still busy: then it counts, because
        even a stream that the client has left uses resources."""
        if stream.reader is not None and stream.reader.is_busy():
            return
        if self._streams.remove(stream) and not self._streams:
            self._idle_since = self._common.now
            if self._is_going:
                self._leave()

    # -- ends ------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Announce the end, refuse new streams after a moment, and close when all are answered.
        Streams that the client begins before it learns of the end are answered too."""
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
        """Stop sending. The client's bytes are discarded for a moment: else the kernel resets the
        connection, and what the client has not read yet is lost."""
        self.is_over = True
        self._left_since = self._common.now
        self.sender.end()

    def _end(self, code: Code, why: str) -> None:
        """Send the reason, and end the connection."""
        self.sender.write(frames.going_away(self._streams.last, code, why))
        for stream in self._streams.all():
            self._lose(stream)
        self._leave()

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    @property
    def unread_bytes(self) -> int:
        """Bytes of answers that the client has not taken yet."""
        return self.sender.unread_bytes

    def look(self, now: float) -> None:
        """Disconnect the client, or reset its streams, if a time limit has passed."""
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
