"""The record by which a user's commands find the servers that the user runs.

It is a nameless memory file that the server keeps open: `sojourn ps` finds it among the descriptors
of the server's process, and it vanishes with that process, however it ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from sojourn.probes import processes

_NAME = "sojourn-server"
_MOST_BYTES = 2**16


class Record(msgspec.Struct, frozen=True):
    """The address and the process of a running server."""

    pid: int
    url: str  # empty without HTTP
    grpc: str | None
    admin_url: str | None  # None: the admin API is off
    started: float  # wall clock
    folder: str  # where it was started
    certificate: str | None = None  # what a client must trust

    @property
    def name(self) -> str:
        """The server's name for people: its URL, or its gRPC address if it has no HTTP."""
        return self.url or f"grpc://{self.grpc}"


def publish(record: Record) -> Callable[[], None]:
    """Publish the record for this user's commands, until the returned function is called."""
    fd = os.memfd_create(_NAME, os.MFD_CLOEXEC)
    os.write(fd, msgspec.json.encode(record))

    def withdraw() -> None:
        nonlocal fd
        if fd >= 0:
            os.close(fd)
            fd = -1

    return withdraw


def running() -> list[Record]:
    """Return this user's running servers, oldest first."""
    found = [record for pid in processes.pids() if (record := _of_process(pid)) is not None]
    return sorted(found, key=lambda record: record.started)


def _of_process(pid: int) -> Record | None:
    folder = f"/proc/{pid}/fd"
    try:
        if os.stat(folder).st_uid != os.geteuid():
            return None  # root can read other users' records but must not trust them
        for name in os.listdir(folder):
            if os.readlink(f"{folder}/{name}") == f"/memfd:{_NAME} (deleted)":
                with open(f"{folder}/{name}", "rb") as file:
                    record = msgspec.json.decode(file.read(_MOST_BYTES), type=Record)
                return record if record.pid == pid else None  # a fork inherits its parent's record
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        pass  # the process has ended, or the file is not a valid record
    return None
