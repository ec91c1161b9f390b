"""Work that must not be interrupted halfway by a signal."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

# When a Thread object is garbage-collected, Python runs a callback, and a Ctrl-C that arrives in it
# is lost. So the main thread drops no Thread object: the next thread started here drops it.
_kept: list[threading.Thread] = []


def is_no_thread(error: BaseException) -> bool:
    """Whether Python could not start a thread. Recognised by its message, because a signal handler
    may raise a RuntimeError, too."""
    return isinstance(error, RuntimeError) and str(error).startswith("can't ")


def to_the_end(work: Callable[[], None], hurry: Callable[[], object] | None = None) -> None:
    """Do the work completely, even if signal handlers raise; then raise the first of their errors.

    Signal handlers run, and raise, on the main thread only: KeyboardInterrupt for Ctrl-C,
    SystemExit or anything else that the program chooses. So on the main thread the work is moved
    to another thread, where further signals cannot interrupt it. `hurry` is called for each signal.
    """
    if threading.current_thread() is not threading.main_thread():
        work()
        return
    failures: list[BaseException] = []
    is_done = threading.Event()
    to_be_begun = threading.Lock()

    def run() -> None:
        if not to_be_begun.acquire(blocking=False):
            return  # an earlier thread has started after all
        for ended in [thread for thread in _kept if not thread.is_alive()]:
            with contextlib.suppress(ValueError):  # another thread was faster
                _kept.remove(ended)
        try:
            work()
        except BaseException as error:
            failures.append(error)
        finally:
            is_done.set()

    raised: list[BaseException] = []
    answered = 0
    thread: threading.Thread | None = None
    while not is_done.is_set():
        try:
            if thread is None:
                starting = threading.Thread(target=run, name="sojourn-to-the-end")
                starting.start()
                _kept.append(starting)
                thread = starting
            while answered < len(raised):
                answered += 1
                if hurry is not None:
                    with contextlib.suppress(Exception):
                        hurry()
            is_done.wait()
        except BaseException as error:
            if thread is None and is_no_thread(error):
                break
            raised.append(error)
    if thread is not None:
        thread.join()
    else:  # the interpreter exits or no thread is available: do the work here, unprotected
        run()
        is_done.wait()
    try:
        try:
            if failures:
                raise failures[0]
        finally:
            if raised:
                raise raised[0]
    finally:
        # An error refers to this frame. If this frame also referred to the error, everything
        # that the caller held would stay alive until the garbage collector runs.
        failures.clear()
        raised.clear()
