"""Placed arrays: ordinary numpy arrays in nameless shared memory, fed to a worker without a copy.

Each large array has a memory file of its own; small ones share one. A file's memory is freed when
the last array in it is garbage-collected, at once and even if other processes still map it. A file
that a fork shares is freed when no process maps it any more.
"""

from __future__ import annotations

import errno
import math
import operator
import os
import weakref
from typing import Any

import numpy as np

from sojourn.transport.mapping import Mapping, address_of, punch
from sojourn.transport.segment import checked_size, sealed_file
from sojourn.values import format_bytes
from sojourn.values.dtypes import NUMBER_OF_DTYPE

_ALIGNMENT = 64  # bytes
_SHARED_FILE_BYTES = 4 * 2**20
_SHARED_AT_MOST = 512 * 2**10  # bytes; a larger array has a file of its own


class MemoryFile(Mapping):
    """A memory file that holds arrays of this process."""

    __slots__ = ("_maker", "_used", "fd")

    def __init__(self, size: int, received: int | None = None) -> None:
        self.size = 0
        self.fd = sealed_file(size) if received is None else received
        self._maker = os.getpid() if received is None else 0  # the process whose arrays lie in it
        self._used = 0
        try:
            super().__init__(self.fd, os.fstat(self.fd).st_size)
        except BaseException:
            os.close(self.fd)
            raise

    @classmethod
    def receive(cls, fd: int) -> MemoryFile:
        """Map a file of another process, whose arrays are then fed like our own. Takes over the
        descriptor; raises SegmentError if the file could be shrunk."""
        try:
            size = checked_size(fd)
        except BaseException:
            os.close(fd)
            raise
        return cls(size, fd)

    def reserve(self, nbytes: int) -> int | None:
        """Return the offset of that many free bytes; None if the file is full."""
        # Reserved before it is checked: two threads at once get different places.
        self._used = end = self._used + -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        return end - -(-nbytes // _ALIGNMENT) * _ALIGNMENT if end <= self.size else None

    def __del__(self, *_: Any) -> None:
        if self.size:
            # The arrays of a fork belong to its parent, and a fork made since shares the file.
            if os.getpid() == self._maker and not self.is_in_a_fork:
                punch(self.fd, self.size)
            os.close(self.fd)
        super().__del__()


# The file for the next small arrays; it lives while any array in it does.
_shared: weakref.ref[MemoryFile] | None = None


def empty(shape: int | tuple[int, ...], dtype: Any = "float32") -> np.ndarray:
    """A new array in shared memory: fed to an isolated session, it is not copied.

    It is an ordinary numpy array, zero at first, and so are its slices and reshapes. It lives as
    long as it or a part of it is referenced. Change it between steps, not during one. A fork
    shares it with you.
    """
    dtype = np.dtype(dtype)
    if dtype.newbyteorder("=") not in NUMBER_OF_DTYPE:
        raise TypeError(f"arrays of dtype {dtype} cannot be placed in shared memory")
    given = (shape,) if isinstance(shape, int | np.integer) else shape
    dims = tuple(operator.index(dim) for dim in given)
    nbytes = math.prod(dims) * dtype.itemsize
    if any(dim < 0 for dim in dims):
        raise ValueError(f"dimensions must not be negative, got {dims}")
    if nbytes == 0 or not hasattr(os, "memfd_create"):
        return np.zeros(dims, dtype)
    try:
        file, offset = _place(nbytes)
    except (OSError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno not in (errno.ENOMEM, errno.EFBIG):
            raise
        asked = f"an array of shape {dims} and dtype {dtype} takes {format_bytes(nbytes)}"
        raise MemoryError(f"{asked}, more than can be placed in shared memory") from None
    return file.array(offset, dims, dtype)


def empty_like(array: Any) -> np.ndarray:
    """A new array in shared memory with the shape and dtype of another."""
    array = np.asarray(array)
    return empty(array.shape, array.dtype)


def _place(nbytes: int) -> tuple[MemoryFile, int]:
    global _shared
    if nbytes > _SHARED_AT_MOST:
        return MemoryFile(nbytes), 0
    file = None if _shared is None else _shared()
    offset = None if file is None else file.reserve(nbytes)
    if file is None or offset is None:
        file = MemoryFile(_SHARED_FILE_BYTES)
        offset = file.reserve(nbytes)
        assert offset is not None
        _shared = weakref.ref(file)
    return file, offset


def file_of(array: np.ndarray) -> MemoryFile | None:
    """Return the memory file that a placed array, or a part of one, lies in."""
    base: Any = array.base
    while base is not None:
        kind = type(base)
        if kind is MemoryFile:
            return base  # type: ignore[no-any-return]
        base = base.obj if kind is memoryview else getattr(base, "base", None)
    return None


def offset_in(file: MemoryFile, array: np.ndarray) -> int:
    """Return the array's offset in its file, in bytes."""
    return address_of(array) - file.address


def _forget_shared_in_child() -> None:
    global _shared
    _shared = None  # the parent keeps filling it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_shared_in_child)
