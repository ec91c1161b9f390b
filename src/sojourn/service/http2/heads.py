"""Heads: the fields that stand before the bytes of a stream, and those behind them.

They come compressed, in terms of what the connection has seen before (RFC 7541). A client sends
the same heads again and again, so what the same bytes meant is remembered, as long as nothing has
changed what they mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import hpack

from sojourn.service.http2.frames import Code, Http2Error, StreamError

_REMEMBERED = 64  # heads
_LARGEST_REMEMBERED = 2**12  # bytes: a few that stand for very much would fill the memory
# Of the table's size: two at the beginning of a head can make sense, and nothing bounds how many
# there are. One of them may be in five bytes.
_TOO_MANY_CHANGES = re.compile(rb"(?:[\x20-\x3e]|\x3f[\x80-\xff]{0,4}[\x00-\x7f]){3}")
NO_TABLE = b"\x20"  # the change to no table at all
_CHANGES = frozenset(bytes((first,)) for first in range(0x20, 0x40))  # how one begins
_HARD = 4  # times the limit: beyond, the client is cut off; up to it, only the request refused
_NAME = re.compile(rb"[a-z0-9!#$%&'*+.^_`|~-]+")
_NO_TEXT = re.compile(rb"[\0\r\n]")
_PSEUDO = frozenset({":method", ":scheme", ":path", ":authority"})
_NEEDED = (":method", ":scheme", ":path")
_OF_CONNECTIONS = frozenset(
    {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"}
)


@dataclass(frozen=True, slots=True)
class Head:
    """What a client asks for."""

    method: str = ""
    path: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)  # names in lower case
    count: int = 0  # of fields
    size: int = 0  # in bytes, as HTTP/2 counts them
    length: int | None = None  # of the body, if the client said so


class HeadReader:
    """Reads the heads of one connection, in the order in which they come."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = _HARD * most_bytes
        self._decoder = hpack.Decoder(max_header_list_size=self.most_bytes)
        self._known: dict[bytes, Head] = {}

    def read(self, block: bytes) -> Head:
        """The head of a request. Raises StreamError if it is malformed."""
        known = self._known.get(block)
        if known is not None:
            return known
        read, is_the_same = self._decoded(block)
        head = _head(read)
        if is_the_same and head.size <= _LARGEST_REMEMBERED:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[block] = head
        return head

    def read_trailers(self, block: bytes) -> None:
        """What stands behind a request's bytes. It is not needed, but changes what follows."""
        if any(name.startswith(b":") for name, _ in self._decoded(block)[0]):
            raise StreamError(Code.PROTOCOL_ERROR, "a trailer has no pseudo-header")

    def _decoded(self, block: bytes) -> tuple[list[tuple[bytes, bytes]], bool]:
        """The fields, and whether the next ones mean what they meant before."""
        if _TOO_MANY_CHANGES.match(block):
            raise Http2Error(
                Code.COMPRESSION_ERROR, "a head changes its table's size twice at most"
            )
        entries = self._decoder.header_table.dynamic_entries
        before = (len(entries), entries[0] if entries else None)
        try:
            read = [(bytes(name), bytes(value)) for name, value in self._decode(block)]
        except hpack.OversizedHeaderListError:
            why = f"a head has at most {self.most_bytes} bytes"
            raise Http2Error(Code.ENHANCE_YOUR_CALM, why) from None
        except (hpack.HPACKError, ValueError, IndexError):
            raise Http2Error(Code.COMPRESSION_ERROR, "a head cannot be read") from None
        is_the_same = (
            len(entries) == before[0]
            and (not entries or entries[0] is before[1])
            and block[:1] not in _CHANGES
        )
        if not is_the_same:
            self._known.clear()
        return read, is_the_same

    def _decode(self, block: bytes) -> Iterable[tuple[bytes, bytes]]:
        return self._decoder.decode(block, raw=True)


def _head(read: Iterable[tuple[bytes, bytes]]) -> Head:
    pseudo: dict[str, str] = {}
    fields: dict[str, str] = {}
    count = size = 0
    for raw, raw_value in read:
        count += 1
        size += len(raw) + len(raw_value) + 32
        if _NO_TEXT.search(raw_value):
            raise StreamError(Code.PROTOCOL_ERROR, f"{raw[:30]!r} has more than one line")
        value = raw_value.decode("latin-1")
        if raw[:1] == b":":
            name = raw.decode("latin-1")
            if fields or name in pseudo or name not in _PSEUDO:
                raise StreamError(Code.PROTOCOL_ERROR, f"{name[:30]} is not expected there")
            pseudo[name] = value
            continue
        if not _NAME.fullmatch(raw):
            raise StreamError(Code.PROTOCOL_ERROR, f"{raw[:30]!r} is no name of a field")
        name = raw.decode("latin-1")
        if name in _OF_CONNECTIONS or (name == "te" and value != "trailers"):
            raise StreamError(Code.PROTOCOL_ERROR, f"{name} is a field of HTTP/1")
        # One that is there twice is a list, by the rules of HTTP.
        fields[name] = f"{fields[name]}, {value}" if name in fields else value
    for name in _NEEDED:
        if not pseudo.get(name):
            raise StreamError(Code.PROTOCOL_ERROR, f"{name} is missing")
    length = fields.get("content-length")
    if length is not None and not (length.isascii() and length.isdigit() and len(length) < 20):
        raise StreamError(Code.PROTOCOL_ERROR, "content-length is no length")
    return Head(
        pseudo[":method"],
        pseudo[":path"],
        fields,
        count,
        size,
        None if length is None else int(length),
    )


def block(*fields: tuple[str, str]) -> bytes:
    """Fields in a form that depends on nothing said before, so that it can be kept."""
    return b"".join(_literal(name.encode(), value.encode("latin-1")) for name, value in fields)


def _literal(name: bytes, value: bytes) -> bytes:
    return b"\0" + _sized(name) + _sized(value)


def _sized(text: bytes) -> bytes:
    left = len(text) - 127
    if left < 0:
        return bytes((len(text),)) + text
    size = bytearray((127,))
    while left >= 128:
        size.append(left % 128 + 128)
        left //= 128
    size.append(left)
    return bytes(size) + text
