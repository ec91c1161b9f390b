"""Resource limits of a worker, applied before its engine starts."""

from __future__ import annotations

import ctypes
import os
import resource
import threading

from sojourn.engines import shortage
from sojourn.engines.shortage import LEAST_BYTES
from sojourn.probes import memory
from sojourn.process import reserve

# Thread stacks come on top of the memory that the user allows: TensorFlow has three pools with a
# thread per core: for ops, for the work inside ops, and for eager calls.
_THREADS_PER_CORE = 3
_STACK_BYTES = 2 * 2**20
_LANE_STACK_BYTES = 8 * 2**20
_LANES_WITH_ROOM = 2

PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36


def cap_data(extra_bytes: int, *, keeps_reserve: bool) -> None:
    """Let this process allocate this many bytes of data more than it has now.

    RLIMIT_AS would also count memory that is only mapped. The limit should refuse tensors and
    arrays, which fail with an error. A framework that cannot start a thread, or cannot allocate its
    bookkeeping, ends the process: so stacks, and where it is needed a reserve for C++, are added.
    """
    if keeps_reserve:
        reserve.keep()
    start, stack = memory.data_bytes(), _limit_stacks()
    stacks = _THREADS_PER_CORE * len(os.sched_getaffinity(0)) * stack
    stacks += _LANES_WITH_ROOM * threading.stack_size()
    limit = start + stacks + max(extra_bytes, LEAST_BYTES)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    shortage.note_limit(extra_bytes, start, stack)


def answer_bytes(memory_bytes: int) -> int:
    """Return the size in bytes above which no honest worker with this limit can answer."""
    return memory_bytes + LEAST_BYTES


def _limit_stacks() -> int:
    """Give the threads that a framework starts smaller stacks than usual, ours the usual ones.

    A stack counts as data in full from the start. Returns the size of a framework's stacks.
    """
    usual, _ = resource.getrlimit(resource.RLIMIT_STACK)
    if not _STACK_BYTES < usual <= _LANE_STACK_BYTES:
        usual = _LANE_STACK_BYTES
    threading.stack_size(usual)
    libc = ctypes.CDLL(None)
    try:
        set_default = libc.pthread_setattr_default_np
    except AttributeError:
        return usual  # no glibc
    attributes = ctypes.create_string_buffer(256)  # several times what any system needs
    libc.pthread_attr_init(attributes)
    libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(_STACK_BYTES))
    return _STACK_BYTES if set_default(attributes) == 0 else usual


def adopt_orphans() -> None:
    """Become the parent of every orphaned descendant (a subreaper), so that none can escape."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def prefer_as_victim() -> None:
    """Make the out-of-memory killer choose this worker rather than its client."""
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
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found  # it has ended
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/children") as listed:
                found += map(int, listed.read().split())
        except OSError:
            pass  # this thread has ended; other threads may have children
    return found
