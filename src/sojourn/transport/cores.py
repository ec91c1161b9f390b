"""Which core a thread runs on, and how it leaves that core.

A caller and its server that share a core must not look for each other's words: as long as one
looks, the other cannot run. The kernel leaves such a pair together for long, because never are
both of them ready for the whole of a tick, which is when it would look for an idle core.
"""

from __future__ import annotations

import ctypes
import os

# Where the cores are busy the kernel brings a thread back, and moving it costs more than it gains.
MOVES_IN_A_ROW = 4
STAY_SECONDS = 0.01
_EVERY_CORE = range(1024)

# The interpreter lock is kept: giving it away would cost more than the call.
_of_the_system = getattr(ctypes.PyDLL(None), "sched_getcpu", lambda: -1)


def _of_this_process() -> int:
    """Without the system's word each process has a core of its own, which no other one has."""
    return 2**32 + os.getpid()


current_core = _of_the_system if _of_the_system() >= 0 else _of_this_process


def leave_core(core: int) -> bool:
    """Have this thread go on on another core, if it may. Whether it did; it may come back."""
    try:
        allowed = os.sched_getaffinity(0)
        if allowed <= {core}:
            return False
        os.sched_setaffinity(0, allowed - {core})
        # What is asked for here is remembered, and kept when a container is given more cores.
        os.sched_setaffinity(0, _EVERY_CORE)
        if os.sched_getaffinity(0) != allowed:  # those were chosen for this thread
            os.sched_setaffinity(0, allowed)
    except OSError:
        return False  # a sandbox may refuse it, or the others were taken away meanwhile
    return True
