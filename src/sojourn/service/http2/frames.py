"""The binary format of frames: constants, packing and unpacking."""

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
SMALLEST_FRAME = 2**14  # the limit until a peer announces a larger one
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
    """Parameters of SETTINGS frames."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class Code(enum.IntEnum):
    """Error codes: why a stream or a connection ends."""

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
    """The client broke the protocol or exceeded a limit: the connection ends."""

    def __init__(self, code: Code, why: str) -> None:
        super().__init__(why)
        self.code = code


class StreamError(Http2Error):
    """The same on one stream: only that stream ends."""


def head_at(data: bytes | bytearray, at: int) -> tuple[int, int, int, int]:
    """Length, type, flags and stream of the frame that begins at `at`."""
    high, low, kind, flags, stream = _HEAD.unpack_from(data, at)
    return high << 16 | low, kind, flags, stream & LAST_STREAM


def frame_head(length: int, kind: int, flags: int, stream: int) -> bytes:
    """The header of a frame."""
    return _HEAD.pack(length >> 16, length & 0xFFFF, kind, flags, stream)


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    """A complete frame."""
    return frame_head(len(content), kind, flags, stream) + content


def settings(values: Mapping[Setting, int]) -> bytes:
    """A SETTINGS frame with these values."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*item) for item in values.items()))


def settings_in(content: bytes) -> Iterator[tuple[int, int]]:
    """The settings in a SETTINGS frame, as numbers and values."""
    if len(content) % _SETTING.size:
        raise Http2Error(Code.FRAME_SIZE_ERROR, "settings have six bytes each")
    return _SETTING.iter_unpack(content)


def window_update(stream: int, count: int) -> bytes:
    """A frame that lets the client send `count` more bytes; stream 0 is the whole connection."""
    return frame(WINDOW_UPDATE, 0, stream, _NUMBER.pack(count))


def reset(stream: int, code: Code) -> bytes:
    """A frame that ends a stream."""
    return frame(RST_STREAM, 0, stream, _NUMBER.pack(code))


def going_away(last: int, code: Code, why: str = "") -> bytes:
    """A frame that announces the end of the connection; streams above `last` were not handled."""
    return frame(GOAWAY, 0, 0, _NUMBER.pack(last) + _NUMBER.pack(code) + why.encode())


def check(kind: int, number: int, content: bytes) -> None:
    """Raise Http2Error unless the frame type is allowed on the stream and has a valid size."""
    if kind in (_OF_CONNECTIONS if number else _OF_STREAMS):
        raise Http2Error(Code.PROTOCOL_ERROR, f"a frame of type {kind} for stream {number}")
    size = len(content)
    if size != _SIZES.get(kind, size) or (kind == GOAWAY and size < _SMALLEST_GOAWAY):
        # A bad PRIORITY frame affects only its own stream.
        error = StreamError if kind == PRIORITY else Http2Error
        raise error(Code.FRAME_SIZE_ERROR, f"a frame of type {kind} with {size} bytes")


def number_in(content: bytes) -> int:
    """The 31-bit number that is the content of a frame."""
    return int(_NUMBER.unpack(content)[0]) & LAST_STREAM


def without_padding(content: bytes) -> bytes:
    """The content of a padded frame, without its padding."""
    if not content or content[0] >= len(content):
        raise Http2Error(Code.PROTOCOL_ERROR, "there is more padding than frame")
    return content[1 : len(content) - content[0]]
