"""What happens when the interpreter exits, in an order that does not depend on imports.

Pools let go first; then sessions are closed, while the zygote is still there to reap their workers.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable

POOLS, SESSIONS, ZYGOTE = range(3)

turns = 0  # how often the callbacks have run: what began before must not begin again after it
_callbacks: list[tuple[int, Callable[[], None]]] = []


def at_exit(order: int, callback: Callable[[], None]) -> None:
    """Call this at exit, after everything of a lower order."""
    _callbacks.append((order, callback))


@atexit.register
def _run() -> None:
    global turns
    turns += 1
    failure: BaseException | None = None
    for _, callback in sorted(_callbacks, key=lambda entry: entry[0]):
        try:
            callback()
        except BaseException as error:
            failure = failure or error  # told, but only after the others had their turn
    if failure is not None:
        raise failure
