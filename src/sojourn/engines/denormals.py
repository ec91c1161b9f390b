"""Numbers too small to be normal become zero, on threads that run TensorFlow's steps in a worker.

TensorFlow's own threads do this. A step that runs on the calling thread would otherwise give other
bits than the same step on TensorFlow's pool, and take longer over such numbers. Only in workers: in
the caller's process a thread's arithmetic is the caller's.
"""

from __future__ import annotations

import ctypes
import platform
import threading

_FLUSH_TO_ZERO_AND_TAKE_FOR_ZERO = 0x8040  # in x86's register of control and status
_IS_X86 = platform.machine().lower() in ("x86_64", "amd64")
_threads = threading.local()
_is_wanted = False


class _Environment(ctypes.Structure):
    """The C library's record of a thread's arithmetic, on x86-64."""

    _fields_ = (("x87", ctypes.c_uint32 * 7), ("control", ctypes.c_uint32))


def want_in_this_process() -> None:
    """From now on `flush_here` does something: this process, or its forks, are workers."""
    global _is_wanted
    _is_wanted = _IS_X86


def flush_here() -> None:
    """Have this thread treat them as zero. Cheap when it does already."""
    if not _is_wanted or hasattr(_threads, "flushes"):
        return
    _threads.flushes = True
    libm = ctypes.CDLL("libm.so.6")
    environment = _Environment()
    libm.fegetenv(ctypes.byref(environment))
    environment.control |= _FLUSH_TO_ZERO_AND_TAKE_FOR_ZERO
    libm.fesetenv(ctypes.byref(environment))
