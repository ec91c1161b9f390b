"""Where a checkpoint is, in words that TensorFlow takes as they are.

It takes the path of a checkpoint for a pattern (`[1]` is any "1"), and for UTF-8. A folder that is
open has another name, of digits alone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

from sojourn.errors import CheckpointError

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


@contextlib.contextmanager
def literal(prefix: bytes, identity: Sequence[int] | None = None) -> Iterator[str]:
    """The same files by another prefix, in this block. `identity` is the folder's device and inode,
    where it must be this one and no other that has its name by now."""
    folder, name = os.path.split(prefix)
    try:
        above = os.open(os.path.dirname(folder), _FOLDER)
        try:
            # In two steps: together they may be longer than a path may be.
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
