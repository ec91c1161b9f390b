"""Copies into shared memory: of one array, by as many cores as pay off, or of rows from several."""

from __future__ import annotations

import threading

import numpy as np

from sojourn.transport.board import CORES
from sojourn.values.rows import Rows

# Below this a second thread takes longer to start than it saves.
SHARED_BYTES = 4 * 2**20


def write(view: np.ndarray, source: np.ndarray | Rows) -> None:
    """Fill the view with the source, which has its shape and dtype."""
    if type(source) is Rows:
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

    def second_half() -> None:
        view[half:] = source[half:]

    helper = threading.Thread(target=second_half, name="sojourn-copies")
    try:
        helper.start()
    except RuntimeError:  # no thread to be had
        view[...] = source
        return
    try:
        view[:half] = source[:half]
    finally:
        helper.join()
