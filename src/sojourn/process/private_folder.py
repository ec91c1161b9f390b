"""A folder for what libraries put into temporary folders while they are imported by a zygote.

matplotlib, which Keras imports, makes one where the home cannot be written, and has an exit handler
remove it. A zygote and its workers run no exit handlers of libraries: what one of them removed, the
others would lack. So such folders go into one whose name the client has chosen: the zygote removes
it as it ends, and the client does if the zygote was killed; if both were, the next zygote of the
same user. While nothing is put into it, it is not made.
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
    """A path of nothing yet; empty where there is no temporary folder."""
    try:
        above = tempfile.gettempdir()
    except OSError:
        return ""
    return owned_folders.path_in(above, _PREFIX)


@contextlib.contextmanager
def collecting(folder: str) -> Iterator[None]:
    """In this block, temporary folders are made in this one. What others have left goes first."""
    if folder:
        owned_folders.sweep(os.path.dirname(folder), _PREFIX, remove)
    make = tempfile.mkdtemp
    is_made = is_over = False

    def made(suffix: str | None = None, prefix: str | None = None, dir: str | None = None) -> str:
        nonlocal is_made
        # Who has imported this function by name calls it later, too.
        if dir is None and folder and not is_over:
            while not is_made:
                with contextlib.suppress(FileExistsError):  # who sweeps has not removed it yet
                    # Its descriptor stays open for as long as the zygote lives.
                    is_made = owned_folders.make(folder) >= 0
            dir = folder
        return make(suffix, prefix, dir)

    tempfile.mkdtemp = made  # type: ignore[assignment]
    try:
        yield
    finally:
        tempfile.mkdtemp, is_over = make, True


def remove(folder: str) -> None:
    """It is needed no more."""
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
