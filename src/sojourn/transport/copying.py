"""Copies into shared memory: of one array, by as many cores as pay off, or of rows from several."""

from __future__ import annotations

import _thread

import numpy as np

from sojourn.transport.board import CORES
from sojourn.values.rows import Rows

# In bytes. Below this a second thread takes longer to start than it saves.
SHARED_BYTES = 4 * 2**20


def write(view: np.ndarray, source: np.ndarray | Rows) -> None:
    """Fill the view with the source, which has its shape and dtype."""
    if type(source) is Rows:
        if view.nbytes < SHARED_BYTES:
            np.concatenate(source.parts, out=view)
            return
        at = 0
        for part in source.parts:
            write(view[at : at + len(part)], part)
            at += len(part)
        return
    assert not isinstance(source, Rows)
    if view.nbytes < SHARED_BYTES or CORES < 2 or len(view) < 2:
        view[...] = source
        return
    half = len(view) // 2

    copied = _thread.allocate_lock()
    copied.acquire()

    def second_half() -> None:
        try:
            view[half:] = source[half:]
        finally:
            copied.release()

    # No Thread object: Python loses a Ctrl-C that arrives while it cleans up after a Thread.
    try:
        _thread.start_new_thread(second_half, ())
    except RuntimeError:  # no more threads can be started
        view[...] = source
        return
    try:
        view[:half] = source[:half]
    finally:
        copied.acquire()
