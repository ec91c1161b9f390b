"""The lifeline: the kernel kills a worker when its client ends, whatever the worker is doing.

It is a socket pair that never carries data: the client holds one end, and the kernel is told to
send SIGKILL to the worker's process group when anything happens on the other. A thread that watches
a socket would not do: it cannot run while C code holds the GIL, or when the process is stopped.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket

F_SETSIG = 10  # not in the fcntl module of every Python we support


def arm(fd: int, owner: int) -> None:
    """Kill `owner` (a process, or a group if negative) as soon as the other end is closed."""
    fcntl.fcntl(fd, fcntl.F_SETOWN, owner)
    fcntl.fcntl(fd, F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
    # The other end may have been closed before the kernel was told.
    if has_ended(fd):
        os._exit(1)


def disarm(fd: int) -> None:
    """Do not be killed any more when the other end is closed."""
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_ASYNC)


def has_ended(fd: int, seconds: float = 0.0) -> bool:
    """Whether the other end has been closed; wait up to `seconds` for that."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def pair() -> tuple[socket.socket, socket.socket]:
    """Return the client's end and the worker's end of a new lifeline."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
