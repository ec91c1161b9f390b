"""Control how TensorFlow allocates memory in a worker with a limit. Loads no TensorFlow."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None)
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of glibc's mallopt
_MOST_IN_HEAP = 32 * 2**20  # bytes: glibc's maximum for the mmap threshold


def bound_tensors(limit_bytes: int) -> None:
    """Make TensorFlow fail at once when it cannot allocate. Must be called before it starts.

    With oneDNN, TensorFlow has its own allocator. That waits for ten seconds before it fails, while
    it holds a lock that other threads need to free memory, and never returns memory to the system.
    The system's allocator fails at once. All threads share one arena, so that memory freed by one
    thread is available to the others. The arena's heap is fast, but wastes several times the size
    of its largest block, because aligned blocks leave gaps. So that size depends on the limit.
    """
    os.environ["TF_ONEDNN_USE_SYSTEM_ALLOCATOR"] = "1"
    if hasattr(_libc, "mallopt"):  # glibc
        in_heap = max(2**20, min(limit_bytes // 128, _MOST_IN_HEAP))
        _libc.mallopt(_ARENA_MAX, 1)
        _libc.mallopt(_MMAP_THRESHOLD, in_heap)
        _libc.mallopt(_TRIM_THRESHOLD, 2 * in_heap)


def give_back() -> None:
    """Return freed memory to the kernel: loading a model needs more memory than keeping it."""
    if hasattr(_libc, "malloc_trim"):  # glibc
        _libc.malloc_trim(0)
