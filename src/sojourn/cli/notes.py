"""TensorFlow's notes about the machine, kept off the terminal.

It writes some before it reads TF_CPP_MIN_LOG_LEVEL, and so do the processes that are started.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from typing import TextIO


@contextlib.contextmanager
def kept_aside() -> Iterator[TextIO]:
    """Give the standard error that there was; until the end, descriptor 2 leads to a file.

    The file is shown if something fails. If TF_CPP_MIN_LOG_LEVEL is set, nothing changes.
    """
    if "TF_CPP_MIN_LOG_LEVEL" in os.environ or sys.stderr is None:
        yield sys.stderr
        return
    with contextlib.ExitStack() as undo:
        file = undo.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
        shown = undo.enter_context(open(os.dup(2), "w", buffering=1, errors="backslashreplace"))
        os.dup2(file.fileno(), 2)
        undo.callback(os.dup2, shown.fileno(), 2)
        try:
            yield shown
        except BaseException:
            file.seek(0)
            shutil.copyfileobj(file, shown)
            raise
