"""A folder for the temporary folders that libraries create while a zygote imports them.

matplotlib, which Keras imports, creates one if the home folder is not writable, and removes it in
an exit handler. A zygote and its workers run no exit handlers of libraries: what one of them
removed would be missing in the others. So such folders are created inside one whose name the client
has chosen: the zygote removes it when it ends, the client removes it if the zygote was killed, and
the next zygote of the same user if both were killed. It is created only when it is first needed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator

from sojourn.process import owned_folders

VARIABLE = "SOJOURN_PRIVATE_FOLDER"
_PREFIX = "sojourn-zygote-"


def choose() -> str:
    """Choose a path where nothing exists yet; empty if the system has no temporary folder."""
    try:
        above = tempfile.gettempdir()
    except OSError:
        return ""
    return owned_folders.path_in(above, _PREFIX)


@contextlib.contextmanager
def collecting(folder: str) -> Iterator[None]:
    """Create temporary folders inside `folder` during this block. Remove leftovers first."""
    if folder:
        owned_folders.sweep(os.path.dirname(folder), _PREFIX, remove)
    make = tempfile.mkdtemp
    is_made = is_over = False

    def made(suffix: str | None = None, prefix: str | None = None, dir: str | None = None) -> str:
        nonlocal is_made
        # A module that has imported this function by name keeps calling it after the block.
        if dir is None and folder and not is_over:
            while not is_made:
                with contextlib.suppress(FileExistsError):  # a sweeping process still removes it
                    # The descriptor stays open for as long as the zygote lives.
                    is_made = owned_folders.make(folder) >= 0
            dir = folder
        return make(suffix, prefix, dir)

    tempfile.mkdtemp = made  # type: ignore[assignment]
    try:
        yield
    finally:
        tempfile.mkdtemp, is_over = make, True


def remove(folder: str) -> None:
    """Remove the folder with its contents, if one was chosen."""
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
