"""Processes of sojourn's, found by the title that each of them carries."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

_TITLE = re.compile(r"^(?:sojourn: (?P<name>.*)|(?P<zygote>sojourn-zygote)) of (?P<client>\d+)$")


@dataclass(frozen=True, slots=True)
class Found:
    """A worker or a zygote that runs now (or is a zombie, waiting to be reaped)."""

    pid: int
    name: str  # the session's, or "zygote"
    client_pid: int
    is_zygote: bool
    is_zombie: bool


def of_client(client_pid: int | None = None) -> list[Found]:
    """The workers and zygotes of one client, or of every client that may be seen."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        one = _look(int(entry))
        if one is not None and client_pid in (None, one.client_pid):
            found.append(one)
    return sorted(found, key=lambda f: f.pid)


def _look(pid: int) -> Found | None:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as cmdline:
            title = cmdline.read().rstrip(b"\0").decode(errors="replace")
        with open(f"/proc/{pid}/stat", "rb") as stat:
            state = stat.read().rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        return None
    match = _TITLE.match(title)
    if match is None:
        return None
    is_zygote = match["zygote"] is not None
    name = "zygote" if is_zygote else match["name"]
    return Found(pid, name, int(match["client"]), is_zygote, state == b"Z")
