"""A received request, and a response to send."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs

import msgspec


@dataclass(slots=True)
class Request:
    """One request, with its body complete and decompressed. Header names are in lower case."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    peer: str = ""  # the client's address
    parts: Mapping[str, str] = field(default_factory=dict)  # of the path, by the pattern's names
    route: str = ""  # the pattern that matched
    request_id: str = ""
    size: int = 0  # of the body as received, in bytes
    takes_chunks: bool = True  # false for HTTP/1.0, which has no chunked transfer coding

    def parameters(self) -> dict[str, str]:
        """The query's parameters; the last value of a duplicate one."""
        return {key: values[-1] for key, values in parse_qs(self.query).items()}


@dataclass(slots=True)
class Response:
    """A response; a body that is an iterator is streamed piece by piece."""

    status: int = 200
    body: bytes | AsyncIterator[bytes] = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


def json_response(value: object, status: int = 200, **headers: str) -> Response:
    """Return a response with `value` as JSON."""
    return Response(status, msgspec.json.encode(value), headers=headers)
