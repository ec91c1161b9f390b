"""The network ports on which processes listen, as listed by the kernel."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

_LISTENS = "0A"
# A bound datagram socket receives from anyone; "07" is the state of an unconnected one.
_TABLES = {"tcp": (_LISTENS,), "tcp6": (_LISTENS,), "udp": ("07",), "udp6": ("07",)}


def sockets(pids: Iterable[int]) -> dict[str, int]:
    """Return the sockets of these processes, of any kind: the process by the socket's inode."""
    return {inode: pid for pid in pids for inode in _socket_inodes(pid)}


def listening(owners: Mapping[str, int]) -> list[str]:
    """Return the ports on which these sockets listen, such as `tcp 8500 of 4711`."""
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
        return  # the system has no IPv6
    for line in lines:
        fields = line.split()
        yield int(fields[1].rpartition(":")[2], 16), fields[3], fields[9]


def _socket_inodes(pid: int) -> Iterable[str]:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return  # the process has ended
    for name in names:
        try:
            target = os.readlink(f"{folder}/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            yield target[len("socket:[") : -1]
