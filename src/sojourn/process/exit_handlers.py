"""Exit handlers in a worker: those registered there run when it ends in order, as in a program.

Libraries use them to remove their temporary folders. Handlers that libraries registered in the
zygote do not run: what one worker removed would be missing in the others.
"""

from __future__ import annotations

import atexit
import logging
import sys
import weakref
from typing import Any


def forget_inherited() -> None:
    """Drop the zygote's exit handlers. Called right after the fork."""
    atexit._clear()
    finalize: Any = weakref.finalize
    for finalizer in list(finalize._registry):
        finalizer.atexit = False
    finalize._registered_with_atexit = False  # the next finalizer registers it again
    # Register these once for each process, and first, because the first registered run last.
    atexit.register(logging.shutdown)
    multiprocessing: Any = sys.modules.get("multiprocessing.util")
    if multiprocessing is not None:
        multiprocessing._finalizer_registry.clear()
        atexit.register(multiprocessing._run_finalizers)  # does not wait for processes


def run() -> None:
    """Run the exit handlers. An error in one is printed, and the others run all the same."""
    atexit._run_exitfuncs()
