"""Heads and trailers: the header fields before and after the bytes of a stream.

They are compressed with HPACK (RFC 7541), relative to what the connection has seen before. A client
sends the same heads repeatedly, so decoded heads are cached by their compressed bytes, until a
change of the compression table changes what those bytes mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import hpack

from sojourn.service.http2.frames import Code, Http2Error, StreamError

_REMEMBERED = 64  # cached heads
_LARGEST_REMEMBERED = 2**12  # bytes of a decoded head: few compressed bytes can mean a huge one
# More than two changes of the table's size at the beginning of a head. Two can make sense, but
# nothing else limits their number. The number in a change may take up to five bytes.
_TOO_MANY_CHANGES = re.compile(rb"(?:[\x20-\x3e]|\x3f[\x80-\xff]{0,4}[\x00-\x7f]){3}")
NO_TABLE = b"\x20"  # the change of the table's size to zero
_CHANGES = frozenset(bytes((first,)) for first in range(0x20, 0x40))  # first bytes of a change
_HARD = 4  # a head over the limit refuses the request; over so many times it, the connection ends
_NAME = re.compile(rb"[a-z0-9!#$%&'*+.^_`|~-]+")
_NO_TEXT = re.compile(rb"[\0\r\n]")
_PSEUDO = frozenset({":method", ":scheme", ":path", ":authority"})
_NEEDED = (":method", ":scheme", ":path")
_OF_CONNECTIONS = frozenset(
    {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"}
)


@dataclass(frozen=True, slots=True)
class Head:
    """The decoded head of a request."""

    method: str = ""
    path: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)  # names in lower case
    count: int = 0  # of fields
    size: int = 0  # in bytes, as HTTP/2 counts them
    length: int | None = None  # of the body, if the client declared it


class HeadReader:
    """Decodes the heads of one connection, in the order in which they are received."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = _HARD * most_bytes
        self._decoder = hpack.Decoder(max_header_list_size=self.most_bytes)
        self._known: dict[bytes, Head] = {}

    def read(self, block: bytes) -> Head:
        """Decode the head of a request. Raises StreamError if it is malformed."""
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
        """Decode a request's trailers and drop them: they may change the compression table."""
        if any(name.startswith(b":") for name, _ in self._decoded(block)[0]):
            raise StreamError(Code.PROTOCOL_ERROR, "a trailer has no pseudo-header")

    def _decoded(self, block: bytes) -> tuple[list[tuple[bytes, bytes]], bool]:
        """Return the fields, and whether the compression table is still the same."""
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
        # Duplicate fields form a list, by the rules of HTTP.
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
    """Encode fields without using the compression table, so that the bytes can be reused."""
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
