"""Which network ports a process listens on, as the kernel lists them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

_LISTENS = "0A"
# A datagram socket that is bound takes whatever comes, and has no other state for it.
_TABLES = {"tcp": (_LISTENS,), "tcp6": (_LISTENS,), "udp": ("07",), "udp6": ("07",)}


def sockets(pids: Iterable[int]) -> dict[str, int]:
    """The sockets of these processes, of any kind: by their inodes, which process has it."""
    return {inode: pid for pid in pids for inode in _socket_inodes(pid)}


def listening(owners: Mapping[str, int]) -> list[str]:
    """The ports that some of these sockets listen on, such as `tcp 8500 of 4711`."""
    found = set()
    for table, states in _TABLES.items():
        for port, state, inode in _sockets(table):
            if state in states and inode in owners:
                found.add(f"{table} {port} of {owners[inode]}")
    return sorted(found)


def _sockets(table: str) -> Iterable[tuple[int, str, str]]:
    try:
        with open(f"/proc/net/{table}") as listed:
            lines = listed.readlines()[1:]
    except OSError:
        return  # no IPv6 here
    for line in lines:
        fields = line.split()
        yield int(fields[1].rpartition(":")[2], 16), fields[3], fields[9]


def _socket_inodes(pid: int) -> Iterable[str]:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return  # it has ended
    for name in names:
        try:
            target = os.readlink(f"{folder}/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            yield target[len("socket:[") : -1]
