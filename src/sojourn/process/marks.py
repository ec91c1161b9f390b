"""A mark in the environment of each worker, inherited by every process that the worker starts.

A child that a model has detached is adopted by the zygote when the worker dies. If that zygote has
died as well, only the mark tells whose the child is: the kernel shows it in /proc for as long as
the process lives, also after a fork or an exec. A program that is started with a different
environment escapes.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import secrets
import signal

from sojourn.probes import processes

NAME = "SOJOURN_WORKER"
_counter = itertools.count(1)
_client = ""  # the common prefix of all marks of this process


def of_client() -> str:
    """Return the prefix that the marks of all workers and zygotes of this process share."""
    global _client
    if not _client:
        _client = secrets.token_hex(8)
    return _client


def new() -> str:
    """Return a mark for the next worker."""
    return f"{of_client()}-{next(_counter):08x}"


def for_zygote() -> str:
    """Return a zygote's mark; each worker overwrites it with its own in the inherited memory."""
    return f"{of_client()}-{0:08x}"


def client_of(mark: str) -> str:
    """Return the prefix of a mark, which names its client."""
    return mark.partition("-")[0]


def wear(mark: str) -> None:
    """Overwrite the inherited mark of the zygote, in the memory that /proc shows."""
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    place = libc.getenv(NAME.encode())
    if place and len(ctypes.string_at(place)) == len(mark):
        ctypes.memmove(place, mark.encode(), len(mark))


def processes_with(mark: str) -> list[int]:
    """Return this user's processes whose mark is or begins with `mark`."""
    return processes.started_with(NAME, mark)


def kill_marked(mark: str) -> list[int]:
    """Kill the processes with this mark, but not the caller. Returns their ids."""
    killed: list[int] = []
    while found := [pid for pid in processes_with(mark) if pid not in (os.getpid(), *killed)]:
        for pid in found:
            killed.append(pid)
            try:
                pidfd = os.pidfd_open(pid)
            except OSError:
                continue  # it has ended
            try:
                if processes.has_environment(pid, NAME, mark):  # still the same process
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            except OSError:
                pass
            finally:
                os.close(pidfd)
    return killed


def _forget_in_child() -> None:
    global _client
    _client = ""


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
