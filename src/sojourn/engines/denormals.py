"""Flush denormal numbers to zero, on threads that run TensorFlow's steps in a worker.

TensorFlow's own threads do this. A step that runs on the calling thread would otherwise give other
bits than the same step on TensorFlow's pool, and take longer with such numbers. This is done in
workers only: in the caller's process, the floating-point mode of threads belongs to the caller.
"""

from __future__ import annotations

import ctypes
import platform
import threading

_FLUSH_TO_ZERO_AND_TAKE_FOR_ZERO = 0x8040  # FTZ and DAZ in x86's MXCSR register
_IS_X86 = platform.machine().lower() in ("x86_64", "amd64")
_threads = threading.local()
_is_wanted = False


class _Environment(ctypes.Structure):
    """The C library's `fenv_t`, a thread's floating-point environment, on x86-64."""

    _fields_ = (("x87", ctypes.c_uint32 * 7), ("control", ctypes.c_uint32))


def want_in_this_process() -> None:
    """Enable `flush_here`, in a process that is a worker or whose forks are workers."""
    global _is_wanted
    _is_wanted = _IS_X86


def flush_here() -> None:
    """Make this thread treat denormals as zero. Cheap when it already does."""
    if not _is_wanted or hasattr(_threads, "flushes"):
        return
    _threads.flushes = True
    libm = ctypes.CDLL("libm.so.6")
    environment = _Environment()
    libm.fegetenv(ctypes.byref(environment))
    environment.control |= _FLUSH_TO_ZERO_AND_TAKE_FOR_ZERO
    libm.fesetenv(ctypes.byref(environment))
