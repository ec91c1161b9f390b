"""Keep TensorFlow's notes about the machine off the terminal.

TensorFlow writes some notes before it reads TF_CPP_MIN_LOG_LEVEL, also in child processes.
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
    """Redirect descriptor 2 to a file in this block, and yield the original standard error.

    If the block fails, the file is shown. If TF_CPP_MIN_LOG_LEVEL is set, nothing is redirected.
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
