"""The processes of sojourn on this machine, found by their titles; facts about any process."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass

_EXEC_SECONDS = 1.0  # the longest wait for an exec; the kernel takes far less
_LOOKS = 3  # reads of an empty environment before it counts as really empty
_TITLE = re.compile(r"^(?:sojourn: (?P<name>.*)|(?P<zygote>sojourn-zygote)) of (?P<client>\d+)$")


@dataclass(frozen=True, slots=True)
class Found:
    """A running worker or zygote. A process that has ended no longer has a title."""

    pid: int
    name: str  # the session's, or "zygote"
    client_pid: int
    is_zygote: bool


def of_client(client_pid: int | None = None) -> list[Found]:
    """Return the workers and zygotes of one client, or of every client that is visible to us."""
    found = map(_look, pids())
    return [one for one in found if one is not None and client_pid in (None, one.client_pid)]


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped. It must not have been reaped yet."""
    try:
        return stat_fields(pid)[0] in (b"T", b"t")
    except (OSError, IndexError):
        return False


def stat_fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/<pid>/stat from the state on. Raises OSError if it has ended."""
    with open(f"/proc/{pid}/stat", "rb") as stat:
        return stat.read().rpartition(b")")[2].split()


def program_of(pid: int) -> str:
    """Return a short name of what a process runs: `serve.py`, `-m pytest`, `gunicorn`, or ""."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as cmdline:
            words = cmdline.read().rstrip(b"\0").decode(errors="replace").split("\0")
    except OSError:
        return ""
    name = os.path.basename(words[0])
    if not name.startswith("python"):
        return name
    for at, word in enumerate(words[1:], 1):
        if word in ("-m", "-c"):
            return " ".join(words[at : at + 2]) if word == "-m" else word
        if not word.startswith("-"):
            return os.path.basename(word)
    return name


def started_with(variable: str, value: str) -> list[int]:
    """Return the processes with this environment variable, if its value begins with `value`.

    /proc shows the environment that a program was started with, for as long as it runs. Processes
    of other users are not found.
    """
    return [pid for pid in pids() if has_environment(pid, variable, value)]


def has_environment(pid: int, variable: str, value: str) -> bool:
    """Whether a process has this environment variable with a value that begins with `value`."""
    entry = f"\0{variable}={value}".encode()
    until = time.monotonic() + _EXEC_SECONDS
    empty = 0
    try:
        while True:
            with open(f"/proc/{pid}/environ", "rb") as environment:
                found = environment.read()
            size, start, end = _memory(pid) if not found else (0, 0, 0)
            empty += 0 < start == end
            if not size or empty == _LOOKS or time.monotonic() > until:
                return entry in b"\0" + found
            time.sleep(0.0005)
    except (OSError, IndexError):
        return False  # another user's process, or it has ended


def _memory(pid: int) -> tuple[int, int, int]:
    """Return the size of a process's memory, and the addresses where its environment begins and
    ends.

    During an exec, the new memory exists first, while both addresses are still 0; then both are
    equal for a moment. Kernel threads and ended processes have no memory.
    """
    fields = stat_fields(pid)
    return int(fields[20]), int(fields[47]), int(fields[48])


def pids() -> list[int]:
    """Return the pids of all processes."""
    return sorted(int(entry) for entry in os.listdir("/proc") if entry.isdigit())


def _look(pid: int) -> Found | None:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as cmdline:
            title = cmdline.read().rstrip(b"\0").decode(errors="replace")
    except OSError:
        return None
    match = _TITLE.match(title)
    if match is None:
        return None
    is_zygote = match["zygote"] is not None
    name = "zygote" if is_zygote else match["name"]
    return Found(pid, name, int(match["client"]), is_zygote)
