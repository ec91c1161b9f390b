"""A mark in the environment of each worker, which whatever it starts inherits.

A child that a model has detached falls to the zygote when the worker dies. If that zygote has died
as well, only the mark tells whose the child is: the kernel shows it in /proc for as long as the
process lives, also after a fork or an exec. A program that is started with an environment of its
own choice slips away.
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
_client = ""  # what all marks of this process begin with


def of_client() -> str:
    """What the marks of all workers of this process begin with; its zygotes carry it."""
    global _client
    if not _client:
        _client = secrets.token_hex(8)
    return _client


def new() -> str:
    """A mark for the next worker."""
    return f"{of_client()}-{next(_counter):08x}"


def for_zygote() -> str:
    """Where a worker will write its own, in the memory it inherits."""
    return f"{of_client()}-{0:08x}"


def client_of(mark: str) -> str:
    """What it begins with."""
    return mark.partition("-")[0]


def wear(mark: str) -> None:
    """Take a mark in the place of the zygote's, where the kernel looks for it."""
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    place = libc.getenv(NAME.encode())
    if place and len(ctypes.string_at(place)) == len(mark):
        ctypes.memmove(place, mark.encode(), len(mark))


def processes_with(mark: str) -> list[int]:
    """This user's processes with this mark, or with one that begins with it."""
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
