"""Exit handlers in a worker: what was registered there runs as it ends in order, as in a program.

Libraries remove their temporary folders by them. Those that the zygote's libraries have registered
do not run: what one worker removed, the others would lack.
"""

from __future__ import annotations

import atexit
import logging
import sys
import weakref
from typing import Any


def forget_inherited() -> None:
    """Right after the fork."""
    atexit._clear()
    finalize: Any = weakref.finalize
    for finalizer in list(finalize._registry):
        finalizer.atexit = False
    finalize._registered_with_atexit = False  # the next one is to register itself
    # Once for each process, and as early as possible: they come last.
    atexit.register(logging.shutdown)
    multiprocessing: Any = sys.modules.get("multiprocessing.util")
    if multiprocessing is not None:
        multiprocessing._finalizer_registry.clear()
        atexit.register(multiprocessing._run_finalizers)  # and does not wait for processes


def run() -> None:
    """At the end. What a handler raises is printed, and keeps no other from running."""
    atexit._run_exitfuncs()
