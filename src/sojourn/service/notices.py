"""How a server process tells those who started it that it answers: systemd, and a file."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections.abc import Mapping
from typing import Any

import msgspec


def tell_systemd(state: str) -> None:
    """`READY=1` and the like, where systemd has started us and listens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(state.encode(), address)


def write_ready_file(path: str, facts: Mapping[str, Any]) -> None:
    """The file is there as a whole, or not at all."""
    folder = os.path.dirname(os.path.abspath(path))
    fd, name = tempfile.mkstemp(prefix=".sojourn-ready-", dir=folder)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.encode(facts) + b"\n")
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
