"""Addresses to listen at, as users write them."""

from __future__ import annotations

import socket


def parsed(address: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:8501` or `[::1]:8501`; port 0 picks a free one."""
    host, separator, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not separator or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"an address must be host:port, such as 127.0.0.1:8501, not {address!r}")
    return host, int(port)


def listening(address: str) -> socket.socket:
    """A socket that is bound to the address. Not by the loop, which keeps threads for names."""
    host, port = parsed(address)
    family, kind, protocol, _, name = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
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
    """The address that a socket is bound to."""
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
