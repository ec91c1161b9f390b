"""Waiting for no longer than a caller has time."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator
from typing import Protocol

from sojourn.process.calls import NoAnswer


class Lock(Protocol):
    """Reentrant or not."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...

    def release(self) -> None: ...


def deadline_after(timeout: float | None) -> float | None:
    """The moment when this many seconds will have passed."""
    return None if timeout is None or timeout == math.inf else time.monotonic() + timeout


def left_until(deadline: float | None, most: float = threading.TIMEOUT_MAX) -> float:
    """The seconds until then, not below zero and not above the most."""
    return most if deadline is None else min(most, max(0.0, deadline - time.monotonic()))


@contextlib.contextmanager
def held(lock: Lock, deadline: float | None) -> Iterator[None]:
    """Hold a lock; NoAnswer if it is not free by the deadline."""
    if not lock.acquire(timeout=left_until(deadline)):
        raise NoAnswer(sent=False)
    try:
        yield
    finally:
        lock.release()
