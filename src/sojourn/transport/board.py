"""The board: a small shared page of words through which the lanes of a session signal each other.

A lane has two rows, one that the caller writes and one that the server writes, each in cache
lines of its own. No lock lives here: every word has a single writer.
"""

from __future__ import annotations

import os
import platform

from sojourn.transport.segment import Segment

LANES = 256
# In a caller's row: for each result file, the last answer whose result the caller has released.
RESULT_FILES = 4
RELEASED = 8
_ROW_WORDS = 16  # 128 bytes: two cache lines, so that neighbours do not slow each other
BYTES = LANES * 2 * _ROW_WORDS * 8

# x86 keeps stores in order: a reader that sees the word also sees the data written before it. On
# other processors Python has no memory fence, so both sides use a system call instead of spinning.
STORES_ARE_ORDERED = platform.machine().lower() in ("x86_64", "amd64")
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
CAN_SPIN = STORES_ARE_ORDERED and CORES > 1
# A spinning caller and its spinning worker occupy two cores.
SPINNERS_AT_MOST = max(1, CORES // 2)


def rows(board: Segment, lane: int) -> tuple[memoryview, memoryview]:
    """Return the caller's and the server's words of one lane."""
    words = memoryview(board.memory).cast("Q")
    start = lane * 2 * _ROW_WORDS
    return (
        words[start : start + _ROW_WORDS],
        words[start + _ROW_WORDS : start + 2 * _ROW_WORDS],
    )
