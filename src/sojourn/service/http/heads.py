"""The heads of responses as bytes, and a cache of the heads of requests."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from http import HTTPStatus

from httptools import HttpRequestParser

from sojourn.service.http.messages import Request, Response

UNASKED_BYTES = 2**16  # of a body, read before the sender is authorized
_REMEMBERED = 256  # cached heads
_LONGEST_REMEMBERED = 1024  # bytes of a cached head
_UNUSUAL = frozenset({"expect", "upgrade", "transfer-encoding"})  # such heads are not cached
BODILESS = frozenset({204, 304})
NAMES: dict[bytes, str] = {}  # header names as received, and in lower case
_NAMES_REMEMBERED = 256
_OF_UPGRADES = ("connection", "http2-settings", "upgrade")
_REASONS = {status.value: status.phrase for status in HTTPStatus} | {499: "Client Closed Request"}


class KnownHeads:
    """A cache from the exact bytes of a head to the request parsed from it: clients send the same
    head repeatedly. Only for requests with small bodies that arrived in one piece."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[bytes, Request]] = {}

    def whole(self, data: bytes) -> tuple[bytes, Request] | None:
        """The URL and the request if `data` is exactly one request with a cached head. Only for
        data that is received between requests."""
        end = data.find(b"\r\n\r\n") + 4
        known = self._known.get(data[:end])
        if known is None:
            return None
        url, like = known
        if like.size != len(data) - end:
            return None
        request = Request(like.method, like.path, like.query, like.headers, data[end:])
        request.size = like.size
        return url, request

    def note(self, data: bytes, url: bytes, request: Request, size: int) -> None:
        """Cache the head in `data`, which ended with a parsed request of a body of `size` bytes."""
        end = len(data) - size
        if end > _LONGEST_REMEMBERED or data.find(b"\r\n\r\n") + 4 != end:
            return  # the request arrived in parts, or together with others
        headers = request.headers
        is_plain = headers.get("content-length") == str(size) and not _UNUSUAL & headers.keys()
        if is_plain and request.takes_chunks and size <= UNASKED_BYTES:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            request.size, request.peer = size, ""
            self._known[data[:end]] = url, request


def head_of(request: Request, response: Response, keeps: bool, length: int | None) -> bytes:
    """The head of a response whose body has `length` bytes; None if the body is streamed."""
    lines = _first_line(response.status)
    if length is None:
        lines += f"content-type: {response.content_type}\r\n"
        lines += "transfer-encoding: chunked\r\n" if request.takes_chunks else ""
    elif response.status not in BODILESS:
        lines += f"content-type: {response.content_type}\r\ncontent-length: {length}\r\n"
    if not keeps:
        lines += "connection: close\r\n"
    elif "connection" in request.headers:  # HTTP/1.0 clients keep the connection only with this
        lines += "connection: keep-alive\r\n"
    for name, value in response.headers.items():
        lines += f"{name}: {value}\r\n"
    return f"{lines}\r\n".encode("latin-1")


@functools.cache
def _first_line(status: int) -> str:
    return f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\n"


def new_name(name: bytes) -> str:
    """Return the header name in lower case, and cache it."""
    key = name.decode("latin-1").lower()
    if len(NAMES) < _NAMES_REMEMBERED:
        NAMES[name] = key
    return key


def plain_head(parser: HttpRequestParser, url: bytes, headers: Mapping[str, str]) -> bytes:
    """The head of a request as received, without the fields that ask for a protocol upgrade."""
    kept = {name: value for name, value in headers.items() if name not in _OF_UPGRADES}
    if "close" in headers.get("connection", "").lower():
        kept["connection"] = "close"
    lines = "".join(f"{name}: {value}\r\n" for name, value in kept.items())
    version = parser.get_http_version().encode()
    first = b"%b %b HTTP/%b\r\n" % (parser.get_method(), url, version)
    return first + f"{lines}\r\n".encode("latin-1")
