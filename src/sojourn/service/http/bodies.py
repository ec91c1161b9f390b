"""Decompression of request bodies, within the size limit."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterator

from sojourn.process.aside import aside
from sojourn.service.failures import Refused, Status, invalid

_MOST_PARTS = 10_000  # gzip members of one body; bgzip writes one for each 64 KiB
# Compressed size from which on a thread decompresses a body: the output may be much larger.
_FOLDED_BYTES = 2**14
_MOST_UNFOLDING = 4  # bodies that threads decompress at the same time
_FED_BYTES = 2**12  # of input at a time; the output may be a thousand times as large
_SOME_BYTES = 2**22  # of output, at least, that are decompressed before they are counted
_WINDOW_BITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}


class Unfolding:
    """Decompresses the bodies of a door: large ones on threads, and only a few at the same time,
    because the bytes that a thread has not reported yet do not count toward the limits."""

    def __init__(self, most_bytes: int, too_large: Status = Status.INVALID_ARGUMENT) -> None:
        self._most_bytes = most_bytes
        self._too_large = too_large  # status for a body that decompresses to more
        self._has_room = asyncio.Semaphore(_MOST_UNFOLDING)

    async def whole(self, body: bytes, coding: str, hold: Callable[[int], None]) -> bytes:
        """Return the decompressed body. `hold` is called with the number of bytes of each part as
        it is decompressed, because a small compressed body can be very large."""
        unfolding = self._decompressed(body, coding)
        is_small = len(body) < _FOLDED_BYTES
        pieces: list[bytes] = []
        while True:
            if is_small:
                some = _some(unfolding)
            else:
                async with self._has_room:
                    some = await aside(lambda: _some(unfolding))
            if not some:
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces += some
            hold(sum(map(len, some)))

    def _decompressed(self, body: bytes, coding: str) -> Iterator[bytes]:
        """Decompress the body piece by piece."""
        coding = coding.strip().lower()
        if coding in ("", "identity"):
            yield body
            return
        bits = _WINDOW_BITS.get(coding)
        if bits is None:
            raise invalid(f"Content-Encoding {coding!r} is not supported")
        try:
            yield from _unfolded(body, bits, self._most_bytes, self._too_large)
        except zlib.error as error:
            raise invalid(f"the body is not {coding}: {error}") from None


def _some(pieces: Iterator[bytes]) -> list[bytes]:
    """Return the next pieces, a few MiB together; an empty list at the end."""
    found: list[bytes] = []
    size = 0
    for piece in pieces:
        found.append(piece)
        size += len(piece)
        if size >= _SOME_BYTES:
            break
    return found


def _unfolded(body: bytes, bits: int, most_bytes: int, too_large: Status) -> Iterator[bytes]:
    at, parts, left = 0, 0, most_bytes
    while at < len(body):  # a gzip body may have several members, one after the other
        parts += 1
        if parts > _MOST_PARTS:
            raise invalid(f"a compressed body has at most {_MOST_PARTS} parts")
        unfolding = zlib.decompressobj(bits)
        while not unfolding.eof:
            # In small pieces, because zlib copies all input that follows the end of a part.
            fed = body[at : at + _FED_BYTES]
            if not fed:
                raise invalid("the compressed body is cut short")
            at += len(fed)
            piece = unfolding.decompress(fed, left + 1)
            left -= len(piece)
            if left < 0:
                raise Refused(too_large, f"the body unfolds to more than {most_bytes} bytes")
            yield piece
        at -= len(unfolding.unused_data)
