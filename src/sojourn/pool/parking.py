"""Where the pool keeps the variables of copies that had to leave: a private folder of its own.

Made when the first copy is parked, below the folder for temporary files, readable by its owner
alone, and removed when the pool closes. A program that was killed cannot remove its own; the next
pool of the same user does, which it recognises by the lock that a living owner would hold.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import threading

from sojourn.errors import CheckpointError
from sojourn.pool.decisions.terms import CopyId

_PREFIX = "sojourn-pool-"


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
        shutil.rmtree(path, ignore_errors=True)

    def leave(self) -> None:
        """Remove everything. Nothing can be parked afterwards."""
        with self._lock:
            self._is_over = True
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
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
                    folder = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)  # for us alone: 0700
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
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if os.path.isdir(folder):
        return fd
    os.close(fd)
    return -1


def _sweep(parent: str) -> None:
    """Remove what killed programs of ours have left."""
    for entry in os.scandir(parent):
        if not entry.name.startswith(_PREFIX) or not entry.is_dir(follow_symlinks=False):
            continue
        with contextlib.suppress(OSError):
            if entry.stat(follow_symlinks=False).st_uid != os.getuid():
                continue
            fd = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry.path, ignore_errors=True)
            finally:
                os.close(fd)
