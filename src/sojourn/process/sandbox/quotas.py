"""How much a closed-off process may take of what its user shares with everybody else.

Memory of its own is the worker's `memory=`, set before. These are the limits beside it, which the
process cannot raise again.
"""

from __future__ import annotations

import os
import re
import resource

# Three for each lane of a caller, and what libraries open. Descriptors on their way in a socket
# count for all processes of a user together, against the limit of who sends: below the usual 1024,
# the others can always send some.
OPEN_FILES = 512
_TASKS, _TASKS_PER_CORE = 512, 8
# Since this version tasks are counted for each user namespace, not only for the user as a whole.
_COUNTS_IN_NAMESPACES = (5, 14)


def set_all(file_bytes: int | None, *, has_own_users: bool) -> bool:
    """Set what can be; tells whether the number of tasks is limited.

    `file_bytes` is the most that one memory file may hold: what is sent, and what is printed.
    """
    _no_core()
    _lower(resource.RLIMIT_NOFILE, OPEN_FILES)
    if file_bytes is not None:
        _lower(resource.RLIMIT_FSIZE, file_bytes)
    # The kernel exempts root, by whatever name it goes in its own namespace.
    is_counted = has_own_users and os.getuid() != 0 and _kernel() >= _COUNTS_IN_NAMESPACES
    if is_counted:
        _lower(resource.RLIMIT_NPROC, _TASKS + _TASKS_PER_CORE * (os.cpu_count() or 1))
    return is_counted


def _no_core() -> None:
    """A crash must not write its memory to a file, nor hand it to a program."""
    try:
        # Too small for any file, and the one value that also holds where cores go to a program.
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    except ValueError:  # it is 0 already, and may not be raised
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _lower(which: int, limit: int) -> None:
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(which, (limit, limit))


def _kernel() -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(found[1]), int(found[2])) if found else (0, 0)
