"""Measures memory over time: reads this process's size on demand and every few milliseconds.

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
    """The anonymous memory of this process, which its allocators hold, in bytes. 0 if unknown."""
    try:
        with open(_STATM, "rb", buffering=0) as file:
            fields = file.read().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * _PAGE


class Meter:
    """Reads `private_bytes` repeatedly. Keeps one descriptor open until `close`.

    The watched program may close this descriptor, or reuse its number for another file.
    """

    def __init__(self) -> None:
        self._last = 0
        try:
            self._fd = os.open(_STATM, os.O_RDONLY | os.O_CLOEXEC)
            self._opened = os.fstat(self._fd)
        except OSError:
            self._fd = -1

    def read(self) -> int:
        """The current bytes; the last value once they cannot be read any more."""
        if self._is_open():
            # In a fork that outlives its parent, the descriptor refers to a process that is gone.
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
    """Samples memory from `start` to `stop`; the interval doubles to keep the list short."""

    def __init__(self, began: float, read: Callable[[], int], seconds: float = 0.02) -> None:
        self.samples: list[tuple[float, int]] = []
        self._began = began
        self._read = read
        self._seconds = seconds
        self._stop = _thread.allocate_lock()
        self._done = _thread.allocate_lock()

    def start(self) -> None:
        """Start sampling."""
        self._sample()
        self._stop.acquire()
        self._done.acquire()
        _thread.start_new_thread(self._loop, ())

    def stop(self) -> None:
        """Wait until the thread has ended, and take a last sample."""
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
