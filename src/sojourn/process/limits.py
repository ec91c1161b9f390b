"""What a worker may take, applied before its engine starts."""

from __future__ import annotations

import ctypes
import os
import resource

PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36


def data_bytes() -> int:
    """What the kernel counts as this process's data, the quantity that RLIMIT_DATA limits."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    return 0


def cap_data(extra_bytes: int) -> None:
    """Let this process allocate this much more data than it has now, and no more.

    RLIMIT_AS would count what is only mapped. With RLIMIT_DATA a tensor that is too large fails
    with ResourceExhaustedError and the session stays usable.
    """
    limit = data_bytes() + extra_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def adopt_orphans() -> None:
    """Become the parent of every descendant that loses its own, so that none can slip away."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def prefer_as_victim() -> None:
    """When the system runs out of memory, let it end this worker rather than its client."""
    try:
        with open("/proc/self/oom_score_adj") as now:
            score = int(now.read())
        with open("/proc/self/oom_score_adj", "w") as adjust:
            adjust.write(str(min(1000, score + 300)))
    except OSError:
        pass  # no /proc, or an older kernel: only the preference is lost


def set_title(title: str) -> None:
    """Name this process in `ps` and `top`, by overwriting the arguments it was started with."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NAME, title.encode()[:15], 0, 0, 0)
    try:
        with open("/proc/self/stat", "rb") as stat:
            # The fields after the command's name, which may itself contain spaces.
            fields = stat.read().rpartition(b")")[2].split()
        start, end = int(fields[45]), int(fields[46])
    except (OSError, ValueError, IndexError):
        return
    room = end - start
    if room > 1 and start:
        text = title.encode()[: room - 1]
        ctypes.memmove(start, text.ljust(room, b"\0"), room)


def descendants(pid: int) -> list[int]:
    """Every process below `pid`, parents before children."""
    found: list[int] = []
    queue = [pid]
    while queue:
        for child in children(queue.pop()):
            found.append(child)
            queue.append(child)
    return found


def children(pid: int) -> list[int]:
    """The processes whose parent is `pid`."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as listed:
                found += map(int, listed.read().split())
    except OSError:
        pass  # it has ended meanwhile
    return found
