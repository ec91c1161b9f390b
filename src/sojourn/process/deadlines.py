"""Waiting no longer than the caller's deadline allows."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator
from typing import Protocol

from sojourn.process.calls import NoAnswer


class Lock(Protocol):
    """A `threading` lock, reentrant or not."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...

    def release(self) -> None: ...


_MOMENT_SECONDS = 1.0  # no thread holds one of our short locks this long unless it is stopped


@contextlib.contextmanager
def held_or_stopped(lock: Lock) -> Iterator[None]:
    """Hold a lock that others hold only briefly. If it does not become free, its holder is the
    main thread, in a signal handler that waits for us: then it is safe to go on without it."""
    is_held = lock.acquire(timeout=_MOMENT_SECONDS)
    try:
        yield
    finally:
        if is_held:
            lock.release()


def deadline_after(timeout: float | None) -> float | None:
    """Return the monotonic time this many seconds from now; None: no deadline."""
    return None if timeout is None or timeout == math.inf else time.monotonic() + timeout


def left_until(deadline: float | None, most: float = threading.TIMEOUT_MAX) -> float:
    """Return the seconds until the deadline, at least zero and at most `most`."""
    return most if deadline is None else min(most, max(0.0, deadline - time.monotonic()))


@contextlib.contextmanager
def held(lock: Lock, deadline: float | None) -> Iterator[None]:
    """Hold a lock; raise NoAnswer if it is not free by the deadline."""
    if not lock.acquire(timeout=left_until(deadline)):
        raise NoAnswer(sent=False)
    try:
        yield
    finally:
        lock.release()
