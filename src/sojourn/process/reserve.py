"""A memory reserve for C and C++ code that cannot report a failed allocation.

Python and TensorFlow's kernels turn a failed allocation into an error. Other code does not:
`operator new` throws through callers that do not expect it, or a null pointer is used. The process
would end by a signal that says nothing of memory. So in a worker with a limit:

- C++ calls a handler before it throws (`std::set_new_handler`). Ours opens a reserve: the
  allocation succeeds, and the step can fail in an orderly way. When the reserve is used up too, it
  ends the worker with a status that says why.
- A fatal signal of a worker that is near its limit is turned into that status.

Handlers must neither allocate nor take the GIL, and may run in any thread: so they are a few
machine instructions each, and exist for x86-64 only. Elsewhere such a worker ends by its signal.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import platform
import signal
import struct
from collections.abc import Callable

from sojourn.engines.shortage import OUT_OF_MEMORY

_BYTES = 64 * 2**20
# A worker that cannot allocate this much (the reserve, open or not, and a bit) is near its limit.
_NEAR_BYTES = _BYTES + 32 * 2**20
# Calls of the C++ handler before it gives up: several threads may fail at once, before the first
# of them has opened the reserve.
_ATTEMPTS = 64
_DATA, _CODE = mmap.PROT_READ | mmap.PROT_WRITE, mmap.PROT_READ | mmap.PROT_EXEC
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_SA_RESETHAND = 0x80000000
_FATAL = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS)


class _Action(ctypes.Structure):
    """glibc's `struct sigaction`."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ubyte * 128),
        ("flags", ctypes.c_uint),
        ("restorer", ctypes.c_void_p),
    )


class _Reserve:
    """The reserve: writable, so that it counts against the limit, and never written, so that it
    takes no memory.

    Opening it makes it inaccessible, so that it no longer counts. Opening it twice is harmless.
    """

    def __init__(self, cpp: ctypes.CDLL) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._room = mmap.mmap(-1, _BYTES, _PRIVATE, _DATA)
        self.open: Callable[[], None] = _nothing
        self._attempts = ctypes.c_uint32(0)
        opens = _opening(_address(self._room), ctypes.addressof(self._attempts))
        self._code = mmap.mmap(-1, mmap.PAGESIZE, _PRIVATE, _DATA)
        self._code.write(opens + _judging())
        if not self._protect(self._code, _CODE):
            return  # this system does not allow generated code
        where = _address(self._code)
        self.open = ctypes.CFUNCTYPE(None)(where)  # made now: later there may be no memory left
        cpp._ZSt15set_new_handlerPFvvE(ctypes.c_void_p(where))
        action = _Action(where + len(opens), flags=_SA_RESETHAND)
        for number in _FATAL:
            self._libc.sigaction(int(number), ctypes.byref(action), None)

    @property
    def is_open(self) -> bool:
        """Whether the reserve has been opened."""
        return self._attempts.value > 0

    def close(self) -> None:
        """Make the reserve count again, if that much memory is available by now."""
        if self._protect(self._room, _DATA):
            self._attempts.value = 0

    def _protect(self, area: mmap.mmap, access: int) -> bool:
        where = ctypes.c_void_p(_address(area))
        return bool(self._libc.mprotect(where, ctypes.c_size_t(len(area)), access) == 0)


def _nothing() -> None:
    pass


_reserve: _Reserve | None = None


def keep() -> None:
    """Create the reserve. From now on it counts as data of this process."""
    global _reserve
    if platform.machine() == "x86_64":
        with contextlib.suppress(OSError, AttributeError):  # no C++ library is loaded here
            _reserve = _Reserve(ctypes.CDLL("libstdc++.so.6", mode=os.RTLD_NOLOAD))


def open_for_words() -> None:
    """Open the reserve for Python, so that it can report that memory has run out."""
    if _reserve is not None:
        _reserve.open()


def keep_again() -> None:
    """Close the reserve again if it is open. Call this when a shortage may be over."""
    if _reserve is not None and _reserve.is_open:
        _reserve.close()


def _opening(room: int, attempts: int) -> bytes:
    """mprotect(room, size, PROT_NONE); if (++*attempts > most) exit_group(OUT_OF_MEMORY)."""
    return b"".join(
        (
            b"\x48\xbf" + struct.pack("<Q", room),  # mov rdi, room
            b"\xbe" + struct.pack("<I", _BYTES),  # mov esi, size
            b"\x31\xd2",  # xor edx, edx
            b"\xb8\x0a\x00\x00\x00",  # mov eax, SYS_mprotect
            b"\x0f\x05",  # syscall
            b"\x48\xbf" + struct.pack("<Q", attempts),  # mov rdi, attempts
            b"\xb8\x01\x00\x00\x00",  # mov eax, 1
            b"\xf0\x0f\xc1\x07",  # lock xadd [rdi], eax
            b"\x83\xf8" + struct.pack("<B", _ATTEMPTS),  # cmp eax, most
            b"\x7f\x01",  # jg past the ret
            b"\xc3",  # ret
            _EXITING,
        )
    )


def _judging() -> bytes:
    """If mmap(size of near) fails, exit_group(OUT_OF_MEMORY). Else the signal is raised again."""
    return b"".join(
        (
            b"\x31\xff",  # xor edi, edi
            b"\xbe" + struct.pack("<I", _NEAR_BYTES),  # mov esi, size
            b"\xba\x03\x00\x00\x00",  # mov edx, PROT_READ | PROT_WRITE
            b"\x41\xba\x22\x00\x00\x00",  # mov r10d, MAP_PRIVATE | MAP_ANONYMOUS
            b"\x49\xc7\xc0\xff\xff\xff\xff",  # mov r8, -1
            b"\x45\x31\xc9",  # xor r9d, r9d
            b"\xb8\x09\x00\x00\x00",  # mov eax, SYS_mmap
            b"\x0f\x05",  # syscall
            b"\x48\x85\xc0",  # test rax, rax
            b"\x78\x01",  # js past the ret: an error number
            b"\xc3",  # ret
            _EXITING,
        )
    )


_EXITING = b"".join(
    (
        b"\xbf" + struct.pack("<I", OUT_OF_MEMORY),  # mov edi, status
        b"\xb8\xe7\x00\x00\x00",  # mov eax, SYS_exit_group
        b"\x0f\x05",  # syscall
    )
)


def _address(area: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(area))
