"""Notify those who started a server process that it is ready: systemd, and a ready file."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from sojourn.service.records import running

_MOST_BYTES = 2**16


def tell_systemd(state: str) -> None:
    """Send a state such as `READY=1` to systemd, if systemd started this process and listens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(state.encode(), address)


@contextlib.contextmanager
def ready_file(path: str | None, facts: Mapping[str, Any]) -> Iterator[None]:
    """Create a file with the server's addresses, atomically, and remove it when the block ends.

    A file that no server has written is not replaced, and a file that another server has put there
    since is not removed.
    """
    if path is None:
        yield
        return
    _require_ready_file(path)
    fd, fresh = tempfile.mkstemp(prefix=".sojourn-ready-", dir=os.path.dirname(path) or ".")
    with open(fd, "wb") as file:  # stays open, so that its inode is not reused
        try:
            file.write(msgspec.json.encode(facts) + b"\n")
            file.flush()
            os.fchmod(fd, 0o644)
            os.replace(fresh, path)
        except BaseException:
            os.unlink(fresh)
            raise
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                if os.path.samestat(os.lstat(path), os.fstat(fd)):
                    os.unlink(path)


def remove_stale_ready_file(path: str | None) -> None:
    """Remove the ready file of a killed server, so that nobody mistakes it for ours."""
    if path is not None:
        facts = _require_ready_file(path)
        if facts is not None and facts.get("pid") not in {server.pid for server in running()}:
            os.unlink(path)


def _require_ready_file(path: str) -> dict[str, Any] | None:
    """Return the facts that a server has left in the file, or None; raise if it is something
    else."""
    os.stat(os.path.dirname(path) or ".")  # a missing folder is reported by its name
    try:
        found = os.stat(path)
        if stat.S_ISREG(found.st_mode):
            with open(path, "rb") as file:
                content = file.read(_MOST_BYTES)
            facts: dict[str, Any] = msgspec.json.decode(content.strip() or b"{}", type=dict)
            if not facts or {"pid", "url"} <= {*facts}:
                return facts
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    raise FileExistsError(f"the ready file {path} is something else, and is not replaced")
