"""Work that Ctrl-C must not stop halfway."""

from __future__ import annotations

import threading
from collections.abc import Callable


def to_the_end(work: Callable[[], None], hurry: Callable[[], None]) -> None:
    """Do the work, whatever is raised meanwhile, and only then raise it.

    Ctrl-C is raised on the main thread only, so there the work is done on another one, which a
    second and a third Ctrl-C cannot reach. `hurry` is called for each.
    """
    if threading.current_thread() is not threading.main_thread():
        work()
        return
    failures: list[BaseException] = []
    is_done = threading.Event()

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)
        finally:
            is_done.set()

    thread = threading.Thread(target=run, name="sojourn-to-the-end")
    try:
        thread.start()
    except RuntimeError:  # the interpreter exits, and starts no threads any more
        work()
        return
    interrupt: KeyboardInterrupt | None = None
    while not is_done.is_set():
        try:
            is_done.wait()
        except KeyboardInterrupt as error:
            interrupt = error
            hurry()
    thread.join()
    if interrupt is not None:
        raise interrupt
    if failures:
        raise failures[0]
