"""A place in the user's source: the file and line that opened, closed or borrowed something."""

from __future__ import annotations

import functools
import os
import sys
from dataclasses import dataclass

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


@dataclass(frozen=True, slots=True)
class Place:
    """A file and a line. It is a plain value and keeps no frame alive."""

    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


NOWHERE = Place("<unknown>", 0)
AT_EXIT = Place("the exit of the program", 0)


def caller() -> Place:
    """The innermost line outside sojourn that is running now."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        # contextlib drives our own context managers; the user's line is behind it.
        if not file.startswith(_HERE) and not file.endswith("contextlib.py"):
            return _place(file, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return NOWHERE


@functools.lru_cache(maxsize=1024)
def _place(file: str, line: int, function: str) -> Place:
    return Place(file, line, function)
