"""A request while it is read, within the limits of its size. Pure: bytes are passed in."""

from __future__ import annotations

from typing import cast

from sojourn.service.http.heads import NAMES, new_name
from sojourn.service.http.limits import Limits

_SMALL_BYTES = 2**10  # pieces of a body below are put together: each alone would take far more


class Refusal(Exception):
    """A request that cannot be read on: the status and why."""


class Incoming:
    """What has come of one request."""

    __slots__ = (
        "_head_bytes", "_header_count", "_limits", "_looked_bytes", "_moved_bytes", "_named_bytes",
        "_pieces", "body_bytes", "headers", "url",
    )  # fmt: skip

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.url = b""
        self.headers: dict[str, str] = {}
        self._header_count = 0
        self._named_bytes = 0  # of its headers so far
        self._head_bytes = 0  # of everything, as long as it is not complete
        self._pieces: list[bytes | bytearray] = []
        self.body_bytes = 0
        self._moved_bytes = -1  # of the body, when more of it came last: at first the head did
        self._looked_bytes = 0  # of the body, at the last look that found it quick enough

    def add_header(self, name: bytes, value: bytes, *, is_trailer: bool) -> None:
        """One more. What a trailer says was not there when the request was let in."""
        self._header_count += 1
        if self._header_count > self._limits.headers:
            raise Refusal(431, f"a request has at most {self._limits.headers} headers")
        if is_trailer:
            return
        self._named_bytes += len(name) + len(value)
        key = NAMES.get(name) or new_name(name)
        text = value.decode("latin-1")
        headers = self.headers
        # One that is there twice is a list, by the rules of HTTP.
        headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def check_head(self) -> None:
        """The head is complete. Raises Refusal if no body may follow it."""
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
        """Some of its body comes."""
        self.body_bytes += count
        if self.body_bytes > self._limits.body_bytes:
            raise self._too_large()

    def add(self, piece: bytes) -> None:
        """Some of its body has come."""
        pieces = self._pieces
        if len(piece) >= _SMALL_BYTES or not pieces:
            pieces.append(piece)
        elif isinstance(pieces[-1], bytearray):
            pieces[-1] += piece
        else:
            pieces.append(bytearray(piece))

    def take_body(self) -> bytes:
        """All of it, which is not kept here any more."""
        pieces, self._pieces = self._pieces, []
        return cast(bytes, pieces[0]) if len(pieces) == 1 else b"".join(pieces)

    def count_unread(self, count: int, *, is_body: bool) -> None:
        """So many bytes more have come. Bounds what the parser keeps by itself: a head that is not
        complete, or a trailer."""
        if is_body and self.body_bytes != self._moved_bytes:
            self._moved_bytes, self._head_bytes = self.body_bytes, 0
            return
        self._head_bytes += count
        if self._head_bytes > self._limits.header_bytes:
            raise Refusal(431, f"a head has at most {self._limits.header_bytes} bytes")

    def is_quick(self, seconds: float) -> bool:
        """Whether its body came quickly enough in these, since the last look that found it so."""
        is_quick = self.body_bytes - self._looked_bytes >= self._limits.slowest_bytes * seconds
        if is_quick:
            self._looked_bytes = self.body_bytes
        return is_quick

    def _too_large(self) -> Refusal:
        return Refusal(413, f"a body has at most {self._limits.body_bytes} bytes")
