"""Safety nets: clean-up that runs if an owner is garbage-collected before it was closed.

Python loses a Ctrl-C that arrives while a finalizer runs. So no class here has a `__del__`, which
would run for every object: closing an owner detaches its net, and then no finalizer runs at all.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any


def net(owner: object, undo: Callable[..., object], *args: Any) -> weakref.finalize[..., Any]:
    """Call `undo(*args)` when the owner is garbage-collected, unless the net was detached."""
    finalizer = weakref.finalize(owner, undo, *args)
    finalizer.atexit = False  # at exit sessions are closed in order
    return finalizer


def close_all(fds: list[int]) -> None:
    """Close all descriptors: the `undo` of a net for descriptors. Create the net with an empty list
    and append each descriptor as soon as it exists: if it existed before the net, a Ctrl-C in
    between would leak it."""
    for fd in fds:
        os.close(fd)
