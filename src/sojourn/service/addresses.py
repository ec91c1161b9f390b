"""Addresses to listen at, as users write them."""

from __future__ import annotations

import re
import socket

_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<host>[^\s:/\[\]]*)):(?P<port>[0-9]{1,5})")


def parsed(address: str) -> tuple[str, int]:
    """Return host and port of `127.0.0.1:8501` or `[::1]:8501`; port 0 picks a free port, and
    `:8501` means every interface."""
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match["port"]) > 65535:
        raise ValueError(f"must be an address such as '127.0.0.1:8501', not {address!r}")
    return match["v6"] or match["host"] or "0.0.0.0", int(match["port"])


def listening(address: str) -> socket.socket:
    """Return a socket bound to the address. The name is resolved here, because the event loop would
    keep a thread for it."""
    host, port = parsed(address)
    try:
        family, kind, protocol, _, name = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise OSError(error.errno, f"cannot listen at {address}: {error.strerror}") from None
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(name)
        made.setblocking(False)
    except OSError as error:
        made.close()
        raise OSError(error.errno, f"cannot listen at {address}: {error.strerror}") from None
    return made


def name_of(bound: socket.socket) -> str:
    """Return the address that a socket is bound to."""
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
