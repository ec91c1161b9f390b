"""Folders for temporary files that are removed with their owner, however it ends.

A living owner holds a lock on its folder. A killed owner cannot remove its folder: the next process
of the same user that needs such a folder removes it, recognised by its name and its free lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
from collections.abc import Callable

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def path_in(above: str, prefix: str) -> str:
    """Choose a path where nothing exists yet. `prefix` says what the folder is for."""
    return os.path.join(above, prefix + secrets.token_hex(8))


def create(above: str, prefix: str) -> tuple[str, int]:
    """Create a folder that only its owner can access. Return its path and a descriptor that must
    stay open for as long as the folder is in use."""
    while True:
        path = path_in(above, prefix)
        fd = make(path)
        if fd >= 0:
            return path, fd


def make(path: str) -> int:
    """Create the folder at a path from `path_in` and return its descriptor; -1 if another process
    removed it as a leftover."""
    os.mkdir(path, 0o700)
    try:
        fd = os.open(path, _FOLDER)
    except FileNotFoundError:
        return -1
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_ours = os.path.isdir(path)
    except BlockingIOError:
        is_ours = False  # another process is about to remove it
    except OSError:
        is_ours = True  # a file system without locks, where no folder is swept
    if is_ours:
        return fd
    os.close(fd)
    return -1


def is_at(path: str, fd: int) -> bool:
    """Whether the folder that is open as `fd` is still at this path."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def is_owned(path: str) -> bool:
    """Whether a process holds the lock of this folder."""
    try:
        fd = os.open(path, _FOLDER)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # a file system without locks
    finally:
        os.close(fd)
    return False


def sweep(above: str, prefix: str, remove: Callable[[str], object]) -> None:
    """Remove the folders that killed processes of this user have left."""
    is_ours = re.compile(re.escape(prefix) + "[0-9a-f]{16}").fullmatch
    with contextlib.suppress(OSError):
        for entry in os.scandir(above):
            if is_ours(entry.name) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    _remove_unowned(entry, remove)


def _remove_unowned(entry: os.DirEntry[str], remove: Callable[[str], object]) -> None:
    if entry.stat(follow_symlinks=False).st_uid != os.getuid():
        return
    fd = os.open(entry.path, _FOLDER)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove(entry.path)
    finally:
        os.close(fd)
