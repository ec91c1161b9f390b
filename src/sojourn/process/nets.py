"""Safety nets: what is undone when its owner is garbage-collected before it came to its end.

Python loses a Ctrl-C that comes while a finalizer runs. So no class here has a `__del__`, which
would run for every object: an end in order takes the net away, and then nothing runs at all.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any


def net(owner: object, undo: Callable[..., object], *args: Any) -> weakref.finalize[..., Any]:
    """Undo it if the owner is garbage-collected, unless the net was detached before."""
    finalizer = weakref.finalize(owner, undo, *args)
    finalizer.atexit = False  # at exit sessions are closed in order
    return finalizer


def close_all(fds: list[int]) -> None:
    """What a net for descriptors does. Hang it out with an empty list and put each descriptor there
    once it is made: made before the net, it would be lost to a Ctrl-C in between."""
    for fd in fds:
        os.close(fd)
