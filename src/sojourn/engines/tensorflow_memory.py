"""How TensorFlow allocates in a worker whose memory is limited. Loads no TensorFlow."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None)
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of glibc's mallopt
_MOST_IN_HEAP = 32 * 2**20  # glibc takes no more


def bound_tensors(limit_bytes: int) -> None:
    """Have TensorFlow refuse at once what it cannot have. To be called before it starts.

    With oneDNN it has an allocator of its own, which waits for ten seconds before it says no, with
    a lock held that others need to free anything, and never gives back what it has. The system's
    allocator says no at once. All threads share one arena: what one of them has freed is then
    there for the others. Its heap is fast but wastes some times the size of the largest block that
    may be in it, because aligned blocks leave gaps: so that depends on the limit.
    """
    os.environ["TF_ONEDNN_USE_SYSTEM_ALLOCATOR"] = "1"
    if hasattr(_libc, "mallopt"):  # glibc
        in_heap = max(2**20, min(limit_bytes // 128, _MOST_IN_HEAP))
        _libc.mallopt(_ARENA_MAX, 1)
        _libc.mallopt(_MMAP_THRESHOLD, in_heap)
        _libc.mallopt(_TRIM_THRESHOLD, 2 * in_heap)


def give_back() -> None:
    """Give the kernel back what was freed: loading a model needs more than having it does."""
    if hasattr(_libc, "malloc_trim"):  # glibc
        _libc.malloc_trim(0)
