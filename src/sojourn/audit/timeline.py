"""Memory over time: reads this process's size, now and every few milliseconds.

The sampler is a bare thread that Python's `threading` does not list, so that a program that
joins "every other thread" does not wait for it.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import time
from collections.abc import Callable

_PAGE = os.sysconf("SC_PAGE_SIZE")
_STATM = "/proc/self/statm"
_MOST_SAMPLES = 4000


def private_bytes() -> int:
    """The memory of this process that no file backs: what its allocators hold. 0 if unknown."""
    try:
        with open(_STATM, "rb", buffering=0) as file:
            fields = file.read().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * _PAGE


class Meter:
    """Reads `private_bytes` over and over. Keeps one descriptor until it is closed.

    The program below may close it, or give its number to a file of its own.
    """

    def __init__(self) -> None:
        self._last = 0
        try:
            self._fd = os.open(_STATM, os.O_RDONLY | os.O_CLOEXEC)
            self._opened = os.fstat(self._fd)
        except OSError:
            self._fd = -1

    def read(self) -> int:
        """The bytes now; what was read last, once they cannot be read any more."""
        if self._is_open():
            # A fork that outlives its parent reads of a process that is gone.
            with contextlib.suppress(OSError):
                fields = os.pread(self._fd, 128, 0).split()
                self._last = (int(fields[1]) - int(fields[2])) * _PAGE
        return self._last

    def close(self) -> None:
        """Close the descriptor. May be called twice."""
        if self._is_open():
            os.close(self._fd)
        self._fd = -1

    def _is_open(self) -> bool:
        try:
            return self._fd >= 0 and os.path.samestat(os.fstat(self._fd), self._opened)
        except OSError:
            return False


class Sampler:
    """Samples memory from `start` to `stop`; the interval grows so that the list stays short."""

    def __init__(self, began: float, read: Callable[[], int], seconds: float = 0.02) -> None:
        self.samples: list[tuple[float, int]] = []
        self._began = began
        self._read = read
        self._seconds = seconds
        self._stop = _thread.allocate_lock()
        self._done = _thread.allocate_lock()

    def start(self) -> None:
        """Begin to sample."""
        self._sample()
        self._stop.acquire()
        self._done.acquire()
        _thread.start_new_thread(self._loop, ())

    def stop(self) -> None:
        """Take a last sample, and wait until the thread is at its end."""
        if self._stop.locked():
            self._stop.release()
            with self._done:
                pass
            self._sample()

    def _loop(self) -> None:
        try:
            while not self._stop.acquire(timeout=self._seconds):
                self._sample()
        finally:
            self._done.release()

    def _sample(self) -> None:
        self.samples.append((time.monotonic() - self._began, self._read()))
        if len(self.samples) > _MOST_SAMPLES:
            del self.samples[1:-1:2]
            self._seconds *= 2
