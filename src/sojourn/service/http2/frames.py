"""Frames as bytes: their numbers, and how those that we send are packed."""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Mapping

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
NOT_HTTP2 = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n"
    b"This port speaks gRPC, which is HTTP/2.\n"
)
HEAD_BYTES = 9
LARGEST_WINDOW = 2**31 - 1
LAST_STREAM = 2**31 - 1
SMALLEST_FRAME = 2**14  # that everybody takes, until told that they take more
LARGEST_FRAME = 2**24 - 1

(DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE,
 CONTINUATION) = range(10)  # fmt: skip

END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
WITH_PRIORITY = 0x20

_OF_STREAMS = (PRIORITY, RST_STREAM)
_OF_CONNECTIONS = (SETTINGS, PING, GOAWAY)
_SIZES = {PRIORITY: 5, RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4}
_SMALLEST_GOAWAY = 8

_HEAD = struct.Struct(">BHBBI")
_SETTING = struct.Struct(">HI")
_NUMBER = struct.Struct(">I")


class Setting(enum.IntEnum):
    """What each side tells the other of itself."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class Code(enum.IntEnum):
    """Why a stream or a connection ends."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class Http2Error(Exception):
    """The client broke the protocol, or takes more than it may: the connection ends."""

    def __init__(self, code: Code, why: str) -> None:
        super().__init__(why)
        self.code = code


class StreamError(Http2Error):
    """The same of one stream: the others go on."""


def head_at(data: bytes | bytearray, at: int) -> tuple[int, int, int, int]:
    """Length, type, flags and stream of the frame that begins there."""
    high, low, kind, flags, stream = _HEAD.unpack_from(data, at)
    return high << 16 | low, kind, flags, stream & LAST_STREAM


def frame_head(length: int, kind: int, flags: int, stream: int) -> bytes:
    """What stands before a frame's bytes."""
    return _HEAD.pack(length >> 16, length & 0xFFFF, kind, flags, stream)


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    """A whole frame."""
    return frame_head(len(content), kind, flags, stream) + content


def settings(values: Mapping[Setting, int]) -> bytes:
    """A frame that tells the client of us."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*item) for item in values.items()))


def settings_in(content: bytes) -> Iterator[tuple[int, int]]:
    """What the client tells of itself."""
    if len(content) % _SETTING.size:
        raise Http2Error(Code.FRAME_SIZE_ERROR, "settings have six bytes each")
    return _SETTING.iter_unpack(content)


def window_update(stream: int, count: int) -> bytes:
    """The client may send so many bytes more; on stream 0: on all streams together."""
    return frame(WINDOW_UPDATE, 0, stream, _NUMBER.pack(count))


def reset(stream: int, code: Code) -> bytes:
    """A stream ends here."""
    return frame(RST_STREAM, 0, stream, _NUMBER.pack(code))


def going_away(last: int, code: Code, why: str = "") -> bytes:
    """The connection ends; streams above `last` have not been looked at."""
    return frame(GOAWAY, 0, 0, _NUMBER.pack(last) + _NUMBER.pack(code) + why.encode())


def check(kind: int, number: int, content: bytes) -> None:
    """Raise Http2Error unless a frame stands where it may, and has the size that it must have."""
    if kind in (_OF_CONNECTIONS if number else _OF_STREAMS):
        raise Http2Error(Code.PROTOCOL_ERROR, f"a frame of type {kind} for stream {number}")
    size = len(content)
    if size != _SIZES.get(kind, size) or (kind == GOAWAY and size < _SMALLEST_GOAWAY):
        # The priority of a stream is nobody else's.
        error = StreamError if kind == PRIORITY else Http2Error
        raise error(Code.FRAME_SIZE_ERROR, f"a frame of type {kind} with {size} bytes")


def number_in(content: bytes) -> int:
    """The content of a frame that is one number of 31 bits."""
    return int(_NUMBER.unpack(content)[0]) & LAST_STREAM


def without_padding(content: bytes) -> bytes:
    """The content of a padded frame."""
    if not content or content[0] >= len(content):
        raise Http2Error(Code.PROTOCOL_ERROR, "there is more padding than frame")
    return content[1 : len(content) - content[0]]
