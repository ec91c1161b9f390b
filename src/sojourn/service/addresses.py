"""Addresses to listen at, as users write them."""

from __future__ import annotations

from typing import Any


def parsed(address: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:8501` or `[::1]:8501`; port 0 picks a free one."""
    host, separator, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not separator or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"an address must be host:port, such as 127.0.0.1:8501, not {address!r}")
    return host, int(port)


def bound(name: Any) -> str:
    """The address of a socket that listens."""
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
