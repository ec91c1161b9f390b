"""Raw clients of a server, and a server for tests that need no model."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import uvloop

import sojourn
from sojourn.service.http.limits import Limits

# libuv makes a pipe for signals with its first loop and keeps it until the process exits. Make it
# now, so that no test seems to leak it.
uvloop.new_event_loop().close()


@dataclass
class Got:
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@contextlib.contextmanager
def serving(
    pool: sojourn.Pool | None = None, limits: Limits | None = None, **options: Any
) -> Iterator[sojourn.Server]:
    """Start a server at a free port of the loopback, with a pool of its own unless one is given."""
    with contextlib.ExitStack() as stack:
        if pool is None:
            pool = stack.enter_context(sojourn.Pool())
        made = sojourn.Server(pool, http="127.0.0.1:0", limits=limits, **options)
        yield stack.enter_context(made)


def connected(server: sojourn.Server, timeout: float = 20.0) -> socket.socket:
    assert server.http_address is not None
    host, _, port = server.http_address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=timeout)


def ask(
    server: sojourn.Server,
    path: str,
    body: Any = None,
    method: str | None = None,
    **headers: str,
) -> Got:
    """Send a request on a connection of its own; a body that is not bytes is sent as JSON."""
    with client(server) as connection:
        return ask_on(connection, path, body, method, **headers)


@contextlib.contextmanager
def client(server: sojourn.Server) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(str(server.http_address), timeout=20)
    try:
        yield connection
    finally:
        connection.close()


def ask_on(
    connection: http.client.HTTPConnection,
    path: str,
    body: Any = None,
    method: str | None = None,
    **headers: str,
) -> Got:
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method or ("GET" if body is None else "POST"), path, body, named)
    response = connection.getresponse()
    got = {name.lower(): value for name, value in response.getheaders()}
    return Got(response.status, got, response.read())


def read_response(sock: socket.socket, *, has_body: bool = True) -> Got:
    """Return the next response on this socket."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(1)
        if not piece:
            raise ConnectionError(f"closed after {data!r}")
        data += piece
    lines = data.decode("latin-1").split("\r\n")
    headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines[1:-2])}
    body = b""
    length = int(headers.get("content-length", 0)) if has_body else 0
    while len(body) < length:
        piece = sock.recv(length - len(body))
        if not piece:
            raise ConnectionError("closed in the middle of a body")
        body += piece
    return Got(int(lines[0].split()[1]), headers, body)


def is_closed(sock: socket.socket) -> bool:
    """Whether the server closes the socket; waits for that at most the socket's timeout."""
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True
