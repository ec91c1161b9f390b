"""Bodies that came compressed, and never more of them than the limit."""

from __future__ import annotations

import zlib

from sojourn.service.failures import Refused, Status
from sojourn.service.http.messages import Request

_WINDOW_BITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}


def decompressed(request: Request, most_bytes: int) -> bytes:
    """The body as it was before its client compressed it."""
    coding = request.headers["content-encoding"].strip().lower()
    if coding in ("", "identity"):
        return request.body
    bits = _WINDOW_BITS.get(coding)
    if bits is None:
        raise Refused(Status.INVALID_ARGUMENT, f"Content-Encoding {coding!r} is not supported")
    pieces: list[bytes] = []
    left = most_bytes
    rest = request.body
    try:
        while rest:  # a gzip body may be several, one behind the other
            unfolding = zlib.decompressobj(bits)
            piece = unfolding.decompress(rest, left + 1)
            left -= len(piece)
            if left < 0:
                raise Refused(
                    Status.INVALID_ARGUMENT, f"the body unfolds to more than {most_bytes} bytes"
                )
            if not unfolding.eof:
                raise Refused(Status.INVALID_ARGUMENT, "the compressed body is cut short")
            pieces.append(piece)
            rest = unfolding.unused_data
    except zlib.error as error:
        raise Refused(Status.INVALID_ARGUMENT, f"the body is not {coding}: {error}") from None
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
