"""Whether this system has what process isolation needs."""

from __future__ import annotations

import os
import sys

from sojourn.errors import PlatformError

_NEEDED = ("memfd_create", "eventfd", "pidfd_open")


def require_process_isolation() -> None:
    """Raise PlatformError if this system cannot give a session a process of its own."""
    if not sys.platform.startswith("linux"):
        raise PlatformError(
            f"process isolation needs Linux, and this is {sys.platform}; "
            'open the session with isolation="inline" instead'
        )
    missing = [name for name in _NEEDED if not hasattr(os, name)]
    if not os.path.isdir("/proc/self/fd"):
        missing.append("/proc")
    if missing:
        raise PlatformError(f"process isolation needs {', '.join(missing)}, missing here")
