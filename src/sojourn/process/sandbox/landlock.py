"""Landlock: the kernel's own fence around a process. Only the given paths can be read.

Rules hang on what a path leads to, not on how it is spelt: symbolic links, `..` and
`/proc/self/root` open no way round. What Landlock does not cover, on any kernel: asking whether
a file exists, its size and its mode (`stat`), and descriptors that were open before.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Iterable

from sojourn.process.sandbox import libc

# The same numbers on every processor.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_OPENAT2 = 437
_NO_LINKS = 0x04 | 0x02  # RESOLVE_NO_SYMLINKS, RESOLVE_NO_MAGICLINKS
_ASK_VERSION = 1
_RULE_PATH_BENEATH = 1

_READ_FILE = 1 << 2
_READ_DIR = 1 << 3

# What each version (ABI) of Landlock added; the newest that the kernel has is used in full.
_FILES_OF_ABI = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}  # .., REFER, TRUNCATE, IOCTL
_TCP_OF_ABI = {4: 0b11}  # bind, connect
_SCOPES_OF_ABI = {6: 0b11}  # abstract unix sockets, signals


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def abi() -> int:
    """The version of Landlock that this kernel has; 0 when it has none, or it is not enabled."""
    try:
        return libc.syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)
    except OSError:
        return 0


def _handled(version: int, added: dict[int, int]) -> int:
    return sum(bits for since, bits in added.items() if since <= version)


def restrict(model: Iterable[str], libraries: Iterable[str], version: int) -> None:
    """Leave this thread nothing of the file system but reading these paths, for good.

    Those of the model must be there and lead over no link. Libraries that are not there, or closed
    to this user anyway, are passed over. `NO_NEW_PRIVS` must be set.
    """
    rules = _Ruleset(
        _handled(version, _FILES_OF_ABI),
        _handled(version, _TCP_OF_ABI),
        _handled(version, _SCOPES_OF_ABI),
    )
    # An older kernel knows a shorter structure, and refuses a longer one only if it is not zero.
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(rules), ctypes.sizeof(rules), 0)
    try:
        for path in model:
            _allow_reading(ruleset, open_without_links(path))
        for path in dict.fromkeys(libraries):
            try:
                descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            _allow_reading(ruleset, descriptor)
        libc.syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def open_without_links(path: str) -> int:
    """A descriptor for the rule of a plain file or a folder, by a path without a single link.

    The path was checked elsewhere before, and a link may have taken a name's place since.
    """
    how = _How(os.O_PATH | os.O_CLOEXEC, 0, _NO_LINKS)
    name = ctypes.c_char_p(os.fsencode(path))
    try:
        descriptor = libc.syscall(_OPENAT2, -1, name, ctypes.byref(how), ctypes.sizeof(how))
    except OSError as error:
        # Containers hide the call from programs. The last name at least can be asked about.
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        os.close(descriptor)
        raise OSError(
            errno.ELOOP if stat.S_ISLNK(mode) else errno.EINVAL, "not a regular file", path
        )
    return descriptor


def _allow_reading(ruleset: int, descriptor: int) -> None:
    try:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        rule = _PathBeneath(_READ_FILE | (_READ_DIR if is_folder else 0), descriptor)
        libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(descriptor)
