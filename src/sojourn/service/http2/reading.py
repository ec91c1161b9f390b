"""The receiving half of a connection: bytes, in pieces of any size, to frames.

The bytes of DATA frames are passed on as they are received, heads once all their CONTINUATION
frames are there, and other frames once they are complete.
"""

from __future__ import annotations

from typing import Protocol

from sojourn.service.http.limits import Common
from sojourn.service.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEAD_BYTES,
    HEADERS,
    PADDED,
    PREFACE,
    SETTINGS,
    SMALLEST_FRAME,
    WITH_PRIORITY,
    Code,
    Http2Error,
    head_at,
    without_padding,
)
from sojourn.service.http2.stream import Stream

LARGEST_FRAME = 2**18
_PRIORITY_BYTES = 5


class Receiver(Protocol):
    """The consumer of the frames."""

    is_over: bool  # it accepts no more frames

    def introduced(self) -> None:
        """The client has sent the HTTP/2 preface."""

    def not_http2(self, data: bytes) -> None:
        """The client began with `data` instead of the HTTP/2 preface."""

    def begin_data(self, number: int, flags: int, length: int) -> Stream | None:
        """A DATA frame of this length, including padding, has begun. Returns the stream that its
        bytes are for; None to skip them."""

    def data(self, stream: Stream, piece: bytes, padding: int, is_last: bool) -> None:
        """Some bytes of the DATA frame. `is_last`: they end the request."""

    def head(self, flags: int, number: int, block: bytes) -> None:
        """A complete head, still compressed."""

    def frame(self, kind: int, flags: int, number: int, content: bytes) -> None:
        """Any other frame."""


class FrameReader:
    """The receiving half of a connection."""

    def __init__(self, receiver: Receiver, common: Common, most_head_bytes: int) -> None:
        self._receiver = receiver
        self._common = common
        self._most_head_bytes = most_head_bytes
        # When the current incomplete frame or head began; None if there is none.
        self.since: float | None = common.now
        self._is_introduced = False  # the client has sent the preface ...
        self._is_greeted = False  # ... and its settings
        self._tail = bytearray()  # the received part of an incomplete frame
        self._needed = 0  # length of `_tail` at which parsing can continue
        self._left = 0  # bytes of a DATA frame not received yet ...
        self._left_for: Stream | None = None  # ... for this stream ...
        self._left_is_last = False  # ... and whether they end its request
        self._head: tuple[int, int, bytearray] | None = None  # waits for CONTINUATION frames

    def feed(self, data: bytes) -> None:
        """Parse received bytes. Raises Http2Error where the client breaks the protocol."""
        if self._tail:
            self._tail += data
            if len(self._tail) < self._needed:
                return
            data = bytes(self._tail)
            self._tail.clear()
        at, end = 0, len(data)
        if not self._is_introduced:
            if not PREFACE.startswith(data[: len(PREFACE)]):
                self._receiver.not_http2(data)
                return
            if end < len(PREFACE):
                self._keep(data, 0, len(PREFACE))
                return
            self._is_introduced = True
            self._receiver.introduced()
            at = len(PREFACE)
        while at < end and not self._receiver.is_over:
            if self._left:
                at = self._go_on_with_data(data, at)
                continue
            if end - at < HEAD_BYTES:
                self._keep(data, at, HEAD_BYTES)
                return
            length, kind, flags, number = head_at(data, at)
            if kind > HEADERS or length > SMALLEST_FRAME or self._head or not self._is_greeted:
                self._check(length, kind, flags)
            if kind == DATA and not flags & PADDED:
                at += HEAD_BYTES
                self.since = None
                stream = self._receiver.begin_data(number, flags, length)
                is_last = bool(flags & END_STREAM)
                if length > end - at:
                    self._left, self._left_for, self._left_is_last = length, stream, is_last
                else:
                    if stream is not None:
                        self._receiver.data(stream, data[at : at + length], 0, is_last)
                    at += length
                continue
            if end - at < HEAD_BYTES + length:
                self._keep(data, at, HEAD_BYTES + length)
                return
            at += HEAD_BYTES + length
            if self._head is None:
                self.since = None
            self._take(kind, flags, number, data[at - length : at])

    def _keep(self, data: bytes, at: int, needed: int) -> None:
        self._tail += memoryview(data)[at:]
        self._needed = needed
        if self.since is None:
            self.since = self._common.now

    def _check(self, length: int, kind: int, flags: int) -> None:
        if length > LARGEST_FRAME:
            raise Http2Error(Code.FRAME_SIZE_ERROR, f"a frame has at most {LARGEST_FRAME} bytes")
        if not self._is_greeted:
            if kind != SETTINGS or flags & ACK:
                raise Http2Error(Code.PROTOCOL_ERROR, "the first frame must be SETTINGS")
            self._is_greeted = True
        if self._head is not None and kind != CONTINUATION:
            raise Http2Error(Code.PROTOCOL_ERROR, "a head must be continued before anything else")
        if kind in (HEADERS, CONTINUATION) and length > self._most_head_bytes:
            raise Http2Error(Code.ENHANCE_YOUR_CALM, "the head is too large")

    def _go_on_with_data(self, data: bytes, at: int) -> int:
        """Pass on the available bytes of a DATA frame; returns the position after them."""
        left, stream = self._left, self._left_for
        piece = data if at == 0 and len(data) <= left else data[at : at + left]
        self._left = left = left - len(piece)
        if not left:
            self._left_for = None
        if stream is not None:
            self._receiver.data(stream, piece, 0, self._left_is_last and not left)
        return at + len(piece)

    # -- other frames ----------------------------------------------------------------------------

    def _take(self, kind: int, flags: int, number: int, content: bytes) -> None:
        if kind == HEADERS:
            self._begin_head(flags, number, content)
        elif kind == CONTINUATION:
            self._continue_head(flags, number, content)
        elif kind == DATA:
            stream = self._receiver.begin_data(number, flags, len(content))
            piece = without_padding(content)
            if stream is not None:
                padding = len(content) - len(piece)
                self._receiver.data(stream, piece, padding, bool(flags & END_STREAM))
        else:
            self._receiver.frame(kind, flags, number, content)

    def _begin_head(self, flags: int, number: int, content: bytes) -> None:
        if not number % 2:
            raise Http2Error(Code.PROTOCOL_ERROR, "clients begin streams of odd numbers")
        if flags & PADDED:
            content = without_padding(content)
        if flags & WITH_PRIORITY:
            if len(content) < _PRIORITY_BYTES:
                raise Http2Error(Code.FRAME_SIZE_ERROR, "the frame is too small")
            content = content[_PRIORITY_BYTES:]
        if flags & END_HEADERS:
            self._receiver.head(flags, number, content)
        else:
            self._head = flags, number, bytearray(content)
            self.since = self._common.now

    def _continue_head(self, flags: int, number: int, content: bytes) -> None:
        if self._head is None or self._head[1] != number:
            raise Http2Error(Code.PROTOCOL_ERROR, "no head is to be continued")
        self._receiver.frame(CONTINUATION, flags, number, b"")  # counts against the credit
        first, _, block = self._head
        block += content
        if len(block) > self._most_head_bytes:
            raise Http2Error(Code.ENHANCE_YOUR_CALM, "the head is too large")
        if flags & END_HEADERS:
            self._head = self.since = None
            self._receiver.head(first, number, bytes(block))
