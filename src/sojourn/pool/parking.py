"""The private folder in which a pool keeps the variables of copies that had to leave.

It is made when the first copy is parked, below the folder for temporary files, readable by its
owner alone, and removed when the pool closes; the folder of a killed program is removed by the next
pool of the same user. Only saved states are removed: any other file in the folder stays.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import tempfile
import threading

from sojourn.errors import CheckpointError
from sojourn.pool.decisions.terms import CopyId
from sojourn.process import owned_folders
from sojourn.session import checkpoints

_PREFIX = "sojourn-pool-"


class Parking:
    """The folder of one pool. `place_for` returns a path for a copy; `leave` removes everything."""

    def __init__(self, folder: str | None) -> None:
        self._parent = folder
        self._folder: str | None = None
        self._fd = -1
        self._lock = threading.Lock()
        self._is_over = False
        self._numbers = itertools.count(1)

    def place_for(self, copy: CopyId) -> str:
        """Return a path to save this copy to. Each path is unique: different names may become the
        same here, and a model that is registered again has copies with the same names."""
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", copy.model)[:80]
        return os.path.join(self._made(), f"{name}-{next(self._numbers)}")

    def leave(self) -> None:
        """Remove the folder. Nothing can be parked afterwards."""
        with self._lock:
            self._is_over = True
            if self._folder is not None:
                _remove(self._folder)
                self._folder = None
            self._let_go()

    def become_foreign(self) -> None:
        """Forget the folder in a fork: it is the parent's, and so is the lock."""
        self._lock = threading.Lock()
        self._folder, self._is_over = None, True
        self._let_go()

    def _made(self) -> str:
        with self._lock:
            if self._is_over:
                raise CheckpointError("the pool is closed")
            if self._folder is None or not owned_folders.is_at(self._folder, self._fd):
                self._let_go()  # it was removed by somebody: close it, and make another
                parent = self._parent or tempfile.gettempdir()
                try:
                    os.makedirs(parent, exist_ok=True)
                    owned_folders.sweep(parent, _PREFIX, _remove)
                    self._folder, self._fd = owned_folders.create(parent, _PREFIX)
                except OSError as error:
                    raise CheckpointError(f"nothing can be parked in {parent}: {error}") from error
            return self._folder

    def _let_go(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _remove(folder: str) -> None:
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            checkpoints.remove(os.path.join(folder, name))
        os.rmdir(folder)
