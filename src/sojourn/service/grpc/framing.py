"""gRPC over HTTP/2: messages in the bytes of a stream, and the heads and trailers of a call."""

from __future__ import annotations

import functools
import re
import struct
from collections import deque
from urllib.parse import quote

from sojourn.service.failures import Refused, Status, invalid
from sojourn.service.http2.heads import block

CODINGS = ("identity", "deflate", "gzip")  # of received messages; ours are sent uncompressed
_SMALL_BYTES = 2**12  # smaller pieces are joined: each alone has a large overhead
_PREFIX = struct.Struct(">BI")  # before a message: whether it is compressed, and its size
PREFIX_BYTES = _PREFIX.size
_STATUS_200 = b"\x88"
_BEGIN = block(
    ("content-type", "application/grpc"), ("grpc-accept-encoding", ",".join(CODINGS))
)  # fmt: skip
HEAD = _STATUS_200 + _BEGIN
OK = block(("grpc-status", "0"))
NO_GRPC = block((":status", "415"))  # for an HTTP/2 request that is not a gRPC call
_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])")
_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
_ENDS = re.compile("^ +| +$")
_MOST_WORDS = 1000  # characters of an error message
_MOST_ENCODED = 6000  # bytes of one, encoded; clients refuse trailers of more than 8 KiB


def prefixed(message: bytes) -> tuple[bytes, bytes]:
    """The message as it is sent: its prefix, and its bytes."""
    return _PREFIX.pack(0, len(message)), message


def failed(status: Status, words: str, *more: tuple[str, str]) -> bytes:
    """The trailers of a failed call."""
    told = _encoded(words[:_MOST_WORDS])
    if len(told) > _MOST_ENCODED:
        told = _encoded(words[: _MOST_WORDS // 2])
    return block(("grpc-status", str(status.grpc)), ("grpc-message", told), *more)


def _encoded(words: str) -> str:
    # gRPC does not encode spaces, but HTTP/2 forbids them at the ends of a field.
    return _ENDS.sub(lambda spaces: "%20" * len(spaces[0]), quote(words, safe=_PLAIN))


@functools.lru_cache(256)
def seconds_of(timeout: str) -> float:
    """The seconds in a `grpc-timeout` field."""
    match = _TIMEOUT.fullmatch(timeout)
    if match is None:
        raise invalid(f"grpc-timeout must be digits and one of HMSmun, not {timeout[:30]!r}")
    return int(match[1]) * _UNITS[match[2]]


def coding_of(encoding: str | None) -> str:
    """The compression of a call's messages, from its `grpc-encoding` field."""
    coding = "identity" if encoding is None else encoding.lower()
    if coding not in CODINGS:
        raise Refused(
            Status.UNIMPLEMENTED, f"messages come as {', '.join(CODINGS)}, not {coding[:30]!r}"
        )
    return coding


class Messages:
    """Assembles the messages of a call from received bytes."""

    def __init__(self, most_bytes: int) -> None:
        self.whole: deque[tuple[bool, bytes]] = deque()  # whether compressed, and the bytes
        self._most_bytes = most_bytes
        self._prefix = b""
        self._pieces: list[bytes] = []
        self._missing = 0

    @property
    def is_between(self) -> bool:
        """Whether no message is incomplete."""
        return not self._prefix

    def feed(self, piece: bytes) -> None:
        """Take received bytes. Raises Refused for an invalid or too large message."""
        at = 0
        while at < len(piece):
            if len(self._prefix) < PREFIX_BYTES:
                begins = at
                at += PREFIX_BYTES - len(self._prefix)
                self._prefix += piece[begins:at]
                if len(self._prefix) < PREFIX_BYTES:
                    return
                self._begin()
            else:
                part = piece[at : at + self._missing]
                at += len(part)
                self._missing -= len(part)
                pieces = self._pieces
                if pieces and len(pieces[-1]) < _SMALL_BYTES:
                    pieces[-1] += part
                else:
                    pieces.append(part)
            if not self._missing:
                pieces = self._pieces
                body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
                self.whole.append((bool(self._prefix[0]), body))
                self._prefix, self._pieces = b"", []

    def _begin(self) -> None:
        flag, self._missing = _PREFIX.unpack(self._prefix)
        if flag > 1:
            raise invalid("a message begins with 0 or 1")
        if self._missing > self._most_bytes:
            raise Refused(
                Status.RESOURCE_EXHAUSTED, f"a request has at most {self._most_bytes} bytes"
            )
