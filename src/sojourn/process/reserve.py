"""Memory kept back for C++ code, which cannot say that it got none.

Python and TensorFlow's kernels answer an allocation that fails with an error. `operator new` throws
instead, through code that does not expect it, and the process ends by a signal. But C++ calls a
handler first (`std::set_new_handler`). Ours opens a reserve, so that the allocation succeeds and
the step can fail in an orderly way; when the reserve is used up as well, it ends the worker with a
status that says why. It must neither allocate nor take Python's lock, and any thread may be in it:
so it is a few instructions, and exists for x86-64 only. Elsewhere such a worker ends by a signal.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import platform
import struct

from sojourn.engines.shortage import OUT_OF_MEMORY

_BYTES = 64 * 2**20
# Several threads may fail at once, before the first of them has opened the reserve.
_ATTEMPTS = 64
_PROT_NONE, _PROT_DATA, _PROT_CODE = 0, mmap.PROT_READ | mmap.PROT_WRITE, 5
_SET_HANDLER = "_ZSt15set_new_handlerPFvvE"


class _Reserve:
    """Writable, so that it counts against the limit, and never written, so that it costs nothing.

    To open it is to make it inaccessible: then it does not count. That can be done twice.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._room = mmap.mmap(-1, _BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, _PROT_DATA)
        self._attempts = ctypes.c_uint32(0)
        code = _code(_address(self._room), ctypes.addressof(self._attempts))
        self._code = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, _PROT_DATA)
        self._code.write(code)
        if self._protect(self._code, _PROT_CODE):
            set_handler = getattr(_cpp(), _SET_HANDLER)
            set_handler.argtypes = [ctypes.c_void_p]
            set_handler(_address(self._code))

    def close(self) -> None:
        """Count it again, if there is that much room by now."""
        if self._protect(self._room, _PROT_DATA):
            self._attempts.value = 0

    def _protect(self, area: mmap.mmap, access: int) -> bool:
        where, size = ctypes.c_void_p(_address(area)), ctypes.c_size_t(len(area))
        return bool(self._libc.mprotect(where, size, access) == 0)


_reserve: _Reserve | None = None


def keep() -> None:
    """Keep the reserve from now on. It counts as data of this process."""
    global _reserve
    if platform.machine() == "x86_64":
        with contextlib.suppress(OSError, AttributeError):  # no C++ is loaded here
            _cpp()
            _reserve = _Reserve()


def keep_again() -> None:
    """To be called when a shortage is over: it may have used the reserve."""
    if _reserve is not None and _reserve._attempts.value:
        _reserve.close()


def _cpp() -> ctypes.CDLL:
    """The C++ library that is loaded already."""
    return ctypes.CDLL("libstdc++.so.6", mode=os.RTLD_NOLOAD)


def _address(area: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(area))


def _code(room: int, attempts: int) -> bytes:
    """mprotect(room, size, PROT_NONE); if (++*attempts > most) exit_group(OUT_OF_MEMORY)."""
    return b"".join(
        (
            b"\x48\xbf" + struct.pack("<Q", room),  # mov rdi, room
            b"\x48\xbe" + struct.pack("<Q", _BYTES),  # mov rsi, size
            b"\x31\xd2",  # xor edx, edx
            b"\xb8\x0a\x00\x00\x00",  # mov eax, SYS_mprotect
            b"\x0f\x05",  # syscall
            b"\x48\xbf" + struct.pack("<Q", attempts),  # mov rdi, attempts
            b"\xb8\x01\x00\x00\x00",  # mov eax, 1
            b"\xf0\x0f\xc1\x07",  # lock xadd [rdi], eax
            b"\x83\xf8" + struct.pack("<B", _ATTEMPTS),  # cmp eax, most
            b"\x7f\x01",  # jg over the ret
            b"\xc3",  # ret
            b"\xbf" + struct.pack("<I", OUT_OF_MEMORY),  # mov edi, status
            b"\xb8\xe7\x00\x00\x00",  # mov eax, SYS_exit_group
            b"\x0f\x05",  # syscall
        )
    )
