"""Callbacks at interpreter exit, in an order that does not depend on the order of imports.

Pools first remove what would stay behind them. Then sessions are closed, while the zygote still
runs and can reap their workers.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable

POOLS, SESSIONS, ZYGOTE = range(3)

turns = 0  # how often the callbacks have run; work that began before must not be retried after
_callbacks: list[tuple[int, Callable[[], None]]] = []


def at_exit(order: int, callback: Callable[[], None]) -> None:
    """Register a callback to run at exit, after all callbacks of a lower order."""
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
            failure = failure or error  # raised, but only after the other callbacks have run
    if failure is not None:
        raise failure
