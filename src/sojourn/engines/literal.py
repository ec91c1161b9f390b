"""Refer to a checkpoint by a path that TensorFlow takes literally.

TensorFlow reads the path of a checkpoint as a glob pattern (`[1]` matches "1") and as UTF-8. An
open folder has another path without special characters: its descriptor's in `/proc/self/fd`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

from sojourn.errors import CheckpointError

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


@contextlib.contextmanager
def literal(prefix: bytes, identity: Sequence[int] | None = None) -> Iterator[str]:
    """In this block, give another prefix for the same files. `identity` is the device and inode of
    the folder, if it must not have been replaced by another one of the same name."""
    folder, name = os.path.split(prefix)
    try:
        above = os.open(os.path.dirname(folder), _FOLDER)
        try:
            # In two steps: the whole path may be longer than the system's limit.
            fd = os.open(os.path.basename(folder) or b".", _FOLDER, dir_fd=above)
        finally:
            os.close(above)
    except OSError as error:
        raise CheckpointError(f"its folder cannot be opened: {error}") from None
    try:
        found = os.fstat(fd)
        if identity is not None and (found.st_dev, found.st_ino) != tuple(identity):
            raise CheckpointError("it was replaced meanwhile")
        link = f"/proc/self/fd/{fd}"
        yield os.path.join(link if os.path.isdir(link) else os.fsdecode(folder), os.fsdecode(name))
    finally:
        os.close(fd)
