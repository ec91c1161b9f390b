"""A folder for what libraries put into temporary folders while they are imported by a zygote.

matplotlib, which Keras imports, makes one where the home cannot be written, and has an exit handler
remove it. A zygote and its workers run no exit handlers of libraries: what one of them removed, the
others would lack. So such folders go into one whose name the client has chosen: the zygote removes
it as it ends, and the client does if the zygote was killed. While nothing is put into it, it is not
made.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator

VARIABLE = "SOJOURN_PRIVATE_FOLDER"


def choose() -> str:
    """A path of nothing yet; empty where there is no temporary folder."""
    try:
        return os.path.join(tempfile.gettempdir(), f"sojourn-zygote-{secrets.token_hex(8)}")
    except OSError:
        return ""


@contextlib.contextmanager
def collecting(folder: str) -> Iterator[None]:
    """In this block, temporary folders are made in this one."""
    make = tempfile.mkdtemp
    is_over = False

    def made(suffix: str | None = None, prefix: str | None = None, dir: str | None = None) -> str:
        # Who has imported this function by name calls it later, too.
        if dir is None and folder and not is_over:
            os.makedirs(folder, 0o700, exist_ok=True)
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
