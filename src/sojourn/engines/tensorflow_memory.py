"""How TensorFlow allocates in a worker whose memory is limited. Loads no TensorFlow."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None)
_ARENA_MAX = -8  # of glibc's mallopt


def bound_tensors(limit_bytes: int) -> None:
    """Have TensorFlow refuse at once what it cannot have. To be called before it starts.

    With oneDNN it has an allocator of its own, which waits for ten seconds before it says no, with
    a lock held that others need to free anything, and never gives back what it has. The system's
    allocator says no at once. All threads share one arena: what one of them has freed is then
    there for the others.
    """
    os.environ["TF_ONEDNN_USE_SYSTEM_ALLOCATOR"] = "1"
    if hasattr(_libc, "mallopt"):  # glibc
        _libc.mallopt(_ARENA_MAX, 1)


def give_back() -> None:
    """Give the kernel back what was freed: loading a model needs more than having it does."""
    if hasattr(_libc, "malloc_trim"):  # glibc
        _libc.malloc_trim(0)
