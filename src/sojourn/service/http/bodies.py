"""Bodies that came compressed, and never more of them than the limit."""

from __future__ import annotations

import zlib

from sojourn.service.failures import Refused, Status
from sojourn.service.http.messages import Request

_MOST_PARTS = 10_000  # bgzip makes one of 64 KiB
_FED_BYTES = 2**14
_WINDOW_BITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}


def decompressed(request: Request, most_bytes: int) -> bytes:
    """The body as it was before its client compressed it."""
    coding = request.headers["content-encoding"].strip().lower()
    if coding in ("", "identity"):
        return request.body
    bits = _WINDOW_BITS.get(coding)
    if bits is None:
        raise Refused(Status.INVALID_ARGUMENT, f"Content-Encoding {coding!r} is not supported")
    try:
        return _unfolded(request.body, bits, most_bytes)
    except zlib.error as error:
        raise Refused(Status.INVALID_ARGUMENT, f"the body is not {coding}: {error}") from None


def _unfolded(body: bytes, bits: int, most_bytes: int) -> bytes:
    pieces: list[bytes] = []
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
            pieces.append(piece)
        at -= len(unfolding.unused_data)
    return b"".join(pieces)
