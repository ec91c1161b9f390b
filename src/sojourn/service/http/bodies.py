"""Bodies that came compressed, and never more of them than the limit."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from sojourn.service.failures import Refused, Status
from sojourn.service.http.messages import Request

_MOST_PARTS = 10_000  # bgzip makes one of 64 KiB
_FED_BYTES = 2**12  # at once; they may unfold to a thousand times as much
_SOME_BYTES = 2**22
_WINDOW_BITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}


def decompressed(request: Request, most_bytes: int) -> Iterator[bytes]:
    """The body as it was before its client compressed it, in pieces."""
    coding = request.headers["content-encoding"].strip().lower()
    if coding in ("", "identity"):
        yield request.body
        return
    bits = _WINDOW_BITS.get(coding)
    if bits is None:
        raise Refused(Status.INVALID_ARGUMENT, f"Content-Encoding {coding!r} is not supported")
    try:
        yield from _unfolded(request.body, bits, most_bytes)
    except zlib.error as error:
        raise Refused(Status.INVALID_ARGUMENT, f"the body is not {coding}: {error}") from None


def some(pieces: Iterator[bytes]) -> list[bytes]:
    """The next few MiB of them; nothing at the end."""
    found: list[bytes] = []
    size = 0
    for piece in pieces:
        found.append(piece)
        size += len(piece)
        if size >= _SOME_BYTES:
            break
    return found


def _unfolded(body: bytes, bits: int, most_bytes: int) -> Iterator[bytes]:
    at, parts, left = 0, 0, most_bytes
    while at < len(body):  # a gzip body may be several, one behind the other
        parts += 1
        if parts > _MOST_PARTS:
            raise Refused(
                Status.INVALID_ARGUMENT, f"a compressed body has at most {_MOST_PARTS} parts"
            )
        unfolding = zlib.decompressobj(bits)
        while not unfolding.eof:
            # In pieces, for what is behind a part is copied when the part ends.
            fed = body[at : at + _FED_BYTES]
            if not fed:
                raise Refused(Status.INVALID_ARGUMENT, "the compressed body is cut short")
            at += len(fed)
            piece = unfolding.decompress(fed, left + 1)
            left -= len(piece)
            if left < 0:
                raise Refused(
                    Status.INVALID_ARGUMENT, f"the body unfolds to more than {most_bytes} bytes"
                )
            yield piece
        at -= len(unfolding.unused_data)
