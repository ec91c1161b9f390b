"""Work that no signal must stop halfway."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

# Python runs a callback of its own for a Thread object that is garbage-collected, and loses a
# Ctrl-C that comes there. So the main thread drops none: the next such thread does.
_kept: list[threading.Thread] = []


def is_no_thread(error: BaseException) -> bool:
    """Whether there was no thread to be had, in Python's words: what a signal's handler raises may
    be a RuntimeError, too."""
    return isinstance(error, RuntimeError) and str(error).startswith("can't ")


def to_the_end(work: Callable[[], None], hurry: Callable[[], object] | None = None) -> None:
    """Do the work, whatever is raised meanwhile, and only then raise the first of it.

    Handlers of signals run, and raise, on the main thread only: KeyboardInterrupt for Ctrl-C,
    SystemExit or anything else as the program likes. So there the work is done on another one,
    which a second and a third signal cannot reach. `hurry` is called for each.
    """
    if threading.current_thread() is not threading.main_thread():
        work()
        return
    failures: list[BaseException] = []
    is_done = threading.Event()
    to_be_begun = threading.Lock()

    def run() -> None:
        if not to_be_begun.acquire(blocking=False):
            return  # the one before us has started after all
        for ended in [thread for thread in _kept if not thread.is_alive()]:
            with contextlib.suppress(ValueError):  # another was faster
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
    else:  # the interpreter exits, or there is no thread to be had: then here, as well as it goes
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
        # An error refers to this frame. If this frame referred to it, all that the caller
        # held would stay until the garbage collector runs.
        failures.clear()
        raised.clear()
