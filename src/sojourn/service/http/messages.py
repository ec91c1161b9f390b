"""A request as it came, and a response as it goes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs

import msgspec


@dataclass(slots=True)
class Request:
    """One request, its body complete and decompressed. Names of headers are in lower case."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    peer: str = ""  # the client's address
    parts: Mapping[str, str] = field(default_factory=dict)  # of the path, by the route's names
    route: str = ""  # the pattern that it was found by
    request_id: str = ""
    size: int = 0  # of the body as it came, in bytes
    takes_chunks: bool = True  # a client of HTTP/1.0 does not know them

    def parameters(self) -> dict[str, str]:
        """The query's parameters; of one that is there twice, the last."""
        return {key: values[-1] for key, values in parse_qs(self.query).items()}


@dataclass(slots=True)
class Response:
    """What goes back; a body that is an iterator is sent in pieces as they come."""

    status: int = 200
    body: bytes | AsyncIterator[bytes] = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


def json_response(value: object, status: int = 200, **headers: str) -> Response:
    """`value` as JSON."""
    return Response(status, msgspec.json.encode(value), headers=headers)
