"""Where the pool keeps the variables of copies that had to leave: a private folder of its own.

Made when the first copy is parked, below the folder for temporary files, readable by its owner
alone, and removed when the pool closes. A program that was killed cannot remove its own; the next
pool of the same user does, which it recognises by its name and by the lock that a living owner
would hold. Only saved states are removed: whatever else somebody has put there stays.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import tempfile
import threading

from sojourn.errors import CheckpointError
from sojourn.pool.decisions.terms import CopyId
from sojourn.session import checkpoints

_PREFIX = "sojourn-pool-"
_OURS = re.compile(_PREFIX + "[0-9a-f]{16}")


class Parking:
    """The folder of one pool. `place_for` returns a path for a copy; `leave` removes everything."""

    def __init__(self, folder: str | None) -> None:
        self._parent = folder
        self._folder: str | None = None
        self._fd = -1
        self._lock = threading.Lock()
        self._is_over = False

    def place_for(self, copy: CopyId) -> str:
        """Where to save this copy. No other copy has the same path."""
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", copy.model)[:80]
        return os.path.join(self._made(), f"{name}-{copy.slot}-{copy.generation}")

    def discard(self, path: str) -> None:
        """A newer state has replaced this one."""
        checkpoints.remove(path)

    def leave(self) -> None:
        """Remove everything. Nothing can be parked afterwards."""
        with self._lock:
            self._is_over = True
            if self._folder is not None:
                _remove(self._folder)
                self._folder = None
            self._let_go()

    def become_foreign(self) -> None:
        """In a fork: the folder is the parent's, and so is its lock."""
        self._lock = threading.Lock()
        self._folder, self._is_over = None, True
        self._let_go()

    def _made(self) -> str:
        with self._lock:
            if self._is_over:
                raise CheckpointError("the pool is closed")
            while self._folder is None:
                parent = self._parent or tempfile.gettempdir()
                try:
                    os.makedirs(parent, exist_ok=True)
                    _sweep(parent)
                    folder = os.path.join(parent, _PREFIX + secrets.token_hex(8))
                    os.mkdir(folder, 0o700)  # for us alone
                    self._fd = _locked(folder)
                except OSError as error:
                    raise CheckpointError(f"nothing can be parked in {parent}: {error}") from error
                if self._fd >= 0:
                    self._folder = folder
            return self._folder

    def _let_go(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _locked(folder: str) -> int:
    """The folder, open and locked; -1 if somebody who sweeps took it for a leftover."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return -1
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_ours = os.path.isdir(folder)
    except BlockingIOError:
        is_ours = False  # who sweeps has it, and is about to remove it
    except OSError:
        is_ours = True  # a file system without locks, where nobody sweeps
    if is_ours:
        return fd
    os.close(fd)
    return -1


def _sweep(parent: str) -> None:
    """Remove what killed programs of ours have left."""
    for entry in os.scandir(parent):
        if not _OURS.fullmatch(entry.name) or not entry.is_dir(follow_symlinks=False):
            continue
        with contextlib.suppress(OSError):
            if entry.stat(follow_symlinks=False).st_uid != os.getuid():
                continue
            fd = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(entry.path)
            finally:
                os.close(fd)


def _remove(folder: str) -> None:
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            checkpoints.remove(os.path.join(folder, name))
        os.rmdir(folder)
