"""A mapping of a memory file that needs no open descriptor, as a buffer that numpy accepts.

Python's own `mmap` keeps a descriptor open for as long as it lives. A program may keep thousands of
results, so their mappings must not.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any, ClassVar

import numpy as np

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
]  # fmt: skip
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
_FAILED = ctypes.c_void_p(-1).value
_KEEP_SIZE_AND_PUNCH = 0x01 | 0x02


class Mapping:
    """Bytes of a memory file, mapped until no array made from them is left.

    `private`: writes through this mapping stay in it; the file does not change.
    """

    __slots__ = ("__array_interface__", "__weakref__", "_age", "address", "size")
    age: ClassVar[object] = object()  # replaced at each fork

    def __init__(self, fd: int, size: int, *, private: bool = False) -> None:
        self.size = 0  # nothing to unmap yet
        self._age = self.age
        how = mmap.MAP_PRIVATE if private else mmap.MAP_SHARED
        address = _libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, how, fd, 0)
        if address == _FAILED:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self.address: int = address
        self.size = size
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (size,),
            "data": (address, False),
        }

    @property
    def is_in_a_fork(self) -> bool:
        """Whether a process forked since then shares the file, and must find it unchanged."""
        return self._age is not self.age

    def array(self, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """Return an array in these bytes; the array keeps the mapping alive."""
        return np.ndarray(shape, dtype, buffer=np.asarray(self).data, offset=offset)

    def __del__(self, unmap: Any = _libc.munmap) -> None:
        if self.size:
            unmap(self.address, self.size)


def _begin_another_age() -> None:
    Mapping.age = object()


if hasattr(os, "register_at_fork"):
    # Before the fork, so that no thread releases a mapping as unshared while it forks; and after
    # it, for the mappings made in between.
    os.register_at_fork(before=_begin_another_age, after_in_parent=_begin_another_age)


def punch(fd: int, size: int) -> None:
    """Free the memory of a file, even if it is still mapped; readers see zeros from now on."""
    _libc.fallocate(fd, _KEEP_SIZE_AND_PUNCH, 0, size)


def address_of(array: np.ndarray) -> int:
    """Return the address of the array's first byte."""
    address: int = array.__array_interface__["data"][0]
    return address
