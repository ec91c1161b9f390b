"""A request while it is received, within the size limits. No I/O: bytes are passed in."""

from __future__ import annotations

from typing import cast

from sojourn.service.http.heads import NAMES, new_name
from sojourn.service.http.limits import Limits

_SMALL_BYTES = 2**10  # smaller pieces of a body are joined: each alone has a large overhead


class Refusal(Exception):
    """A request that must not be read any further: the status and the reason."""


class Incoming:
    """What has been received of one request."""

    __slots__ = (
        "_head_bytes", "_header_count", "_limits", "_looked_bytes", "_moved_bytes", "_named_bytes",
        "_pieces", "body_bytes", "headers", "url",
    )  # fmt: skip

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.url = b""
        self.headers: dict[str, str] = {}
        self._header_count = 0
        self._named_bytes = 0  # of names and values of headers so far
        self._head_bytes = 0  # received while the head or a trailer is incomplete
        self._pieces: list[bytes | bytearray] = []
        self.body_bytes = 0
        self._moved_bytes = -1  # `body_bytes` when the body last grew; -1 while the head is read
        self._looked_bytes = 0  # `body_bytes` at the last check that found it quick enough

    def add_header(self, name: bytes, value: bytes, *, is_trailer: bool) -> None:
        """Add a header. A trailer counts but is dropped: the request was authorized without it."""
        self._header_count += 1
        if self._header_count > self._limits.headers:
            raise Refusal(431, f"a request has at most {self._limits.headers} headers")
        if is_trailer:
            return
        self._named_bytes += len(name) + len(value)
        key = NAMES.get(name) or new_name(name)
        text = value.decode("latin-1")
        headers = self.headers
        # Duplicate headers form a list, by the rules of HTTP.
        headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def check_head(self) -> None:
        """Check the complete head. Raises Refusal if no body may follow."""
        limits, headers = self._limits, self.headers
        if len(self.url) + self._named_bytes > limits.header_bytes:
            raise Refusal(431, f"a head has at most {limits.header_bytes} bytes")
        length = headers.get("content-length")
        if length is not None and int(length) > limits.body_bytes:
            raise self._too_large()
        if headers.get("transfer-encoding", "chunked").lower() != "chunked":
            raise Refusal(400, "the only transfer coding that is understood is chunked")
        if headers.get("expect", "100-continue").lower() != "100-continue":
            raise Refusal(417, "the only expectation that can be met is 100-continue")

    def count(self, count: int) -> None:
        """Count bytes of the body. Raises Refusal if the body is too large."""
        self.body_bytes += count
        if self.body_bytes > self._limits.body_bytes:
            raise self._too_large()

    def add(self, piece: bytes) -> None:
        """Add a piece of the body."""
        pieces = self._pieces
        if len(piece) >= _SMALL_BYTES or not pieces:
            pieces.append(piece)
        elif isinstance(pieces[-1], bytearray):
            pieces[-1] += piece
        else:
            pieces.append(bytearray(piece))

    def take_body(self) -> bytes:
        """Return the whole body, and drop it here."""
        pieces, self._pieces = self._pieces, []
        return cast(bytes, pieces[0]) if len(pieces) == 1 else b"".join(pieces)

    def count_unread(self, count: int, *, is_body: bool) -> None:
        """Count `count` received bytes. This limits what the parser buffers by itself: an
        incomplete head, or a trailer."""
        if is_body and self.body_bytes != self._moved_bytes:
            self._moved_bytes, self._head_bytes = self.body_bytes, 0
            return
        self._head_bytes += count
        if self._head_bytes > self._limits.header_bytes:
            raise Refusal(431, f"a head has at most {self._limits.header_bytes} bytes")

    def is_quick(self, seconds: float) -> bool:
        """Whether the body moved fast enough in the `seconds` since the last successful check."""
        is_quick = self.body_bytes - self._looked_bytes >= self._limits.slowest_bytes * seconds
        if is_quick:
            self._looked_bytes = self.body_bytes
        return is_quick

    def _too_large(self) -> Refusal:
        return Refusal(413, f"a body has at most {self._limits.body_bytes} bytes")
