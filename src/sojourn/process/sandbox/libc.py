"""The few C library calls that a sandbox needs. Each raises `OSError` when the kernel says no."""

from __future__ import annotations

import ctypes
import os
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
# _LINUX_CAPABILITY_VERSION_3: two 32-bit words each of effective, permitted, inheritable.
_CAPABILITY_VERSION = 0x20080522


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def syscall(number: int, *arguments: Any) -> int:
    """A system call that the C library has no name for."""
    # A plain int would be passed as a 32-bit one: the upper half of the register is then noise.
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _checked(_libc.syscall(ctypes.c_long(number), *wide))


def unshare(flags: int) -> None:
    """Leave the namespaces of the parent for new ones."""
    _checked(_libc.unshare(ctypes.c_int(flags)))


def _prctl(option: int, *arguments: int) -> int:
    wide = [ctypes.c_ulong(a) for a in (*arguments, 0, 0, 0, 0)[:4]]
    return _checked(_libc.prctl(ctypes.c_int(option), *wide))


def set_no_new_privs() -> None:
    """From now on no exec can gain anything. Landlock and seccomp ask for it first."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def set_seccomp_filter(program: int) -> None:
    """Install the filter at this address, for the rest of the process's life."""
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program)


def drop_capabilities() -> None:
    """Give up every capability, as a process of root (or of a new user namespace) has them all."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _checked(_libc.capset(ctypes.byref(header), ctypes.byref(nothing)))
