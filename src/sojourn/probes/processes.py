"""Processes of sojourn's, found by the title that each of them carries."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass

_EXEC_SECONDS = 1.0  # much longer than the kernel takes for it
_LOOKS = 3  # at an environment that may be empty for good
_TITLE = re.compile(r"^(?:sojourn: (?P<name>.*)|(?P<zygote>sojourn-zygote)) of (?P<client>\d+)$")


@dataclass(frozen=True, slots=True)
class Found:
    """A worker or a zygote that runs now. One that has ended has no title any more."""

    pid: int
    name: str  # the session's, or "zygote"
    client_pid: int
    is_zygote: bool


def of_client(client_pid: int | None = None) -> list[Found]:
    """The workers and zygotes of one client, or of every client that may be seen."""
    found = map(_look, pids())
    return [one for one in found if one is not None and client_pid in (None, one.client_pid)]


def is_stopped(pid: int) -> bool:
    """Whether a process that has not been waited for is stopped."""
    try:
        return stat_fields(pid)[0] in (b"T", b"t")
    except (OSError, IndexError):
        return False


def stat_fields(pid: int) -> list[bytes]:
    """What the kernel says of a process, from its state on. Raises OSError if it has ended."""
    with open(f"/proc/{pid}/stat", "rb") as stat:
        return stat.read().rpartition(b")")[2].split()


def program_of(pid: int) -> str:
    """What a process runs, as one calls it: `serve.py`, `-m pytest`, `gunicorn`; "" if unknown."""
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
    """The processes that have this in their environment, or a value that begins so.

    A program keeps what it was started with, wherever it went. Those of other users are not seen.
    """
    return [pid for pid in pids() if has_environment(pid, variable, value)]


def has_environment(pid: int, variable: str, value: str) -> bool:
    """Whether a process has this in its environment, or a value that begins so."""
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
        return False  # another user's, or it has ended


def _memory(pid: int) -> tuple[int, int, int]:
    """The size of a process's memory, and where its environment begins and ends in there.

    In an exec the new memory is there first; the environment has no place yet, then one without
    length. Threads of the kernel and what has ended have no memory.
    """
    fields = stat_fields(pid)
    return int(fields[20]), int(fields[47]), int(fields[48])


def pids() -> list[int]:
    """Every process that there is now."""
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
