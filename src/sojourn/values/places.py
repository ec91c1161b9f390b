"""A place in the user's source: the file and line that opened, closed or borrowed something.

Cells of a notebook have the names of files that do not exist; to a reader they are `cell 9`.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


@dataclass(frozen=True, slots=True)
class Place:
    """A file and a line. It is a plain value and keeps no frame alive."""

    file: str
    line: int
    function: str = ""
    cell: int | None = None  # the number of the notebook's cell, if it is in one

    def __str__(self) -> str:
        if self.cell is not None:
            return f"cell {self.cell}, line {self.line}"
        return f"{self.file}:{self.line}" if self.line else self.file


NOWHERE = Place("<unknown>", 0)
AT_EXIT = Place("the exit of the program", 0)


def caller(ours: str | tuple[str, ...] = HERE) -> Place:
    """The innermost line that is running now outside sojourn, or outside files that begin so."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        # contextlib drives our own context managers; the user's line is behind it.
        if not file.startswith(ours) and not file.endswith("contextlib.py"):
            return at(file, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return NOWHERE


def at(file: str, line: int, function: str) -> Place:
    """A place, with the number that the cell has now: a cell that runs again has another."""
    return _place(file, line, function, _cells().get(file))


def relative(file: str) -> str:
    """The file as it is named from the current folder, if it is below."""
    if not os.path.isabs(file):
        return file
    try:
        name = os.path.relpath(file)
    except OSError:  # the current folder is gone
        return file
    return file if name.startswith("..") else name


def with_cells(traceback: str) -> str:
    """A traceback that names cells of the notebook as the reader knows them."""
    cells = _cells()
    if not cells:
        return traceback
    return re.sub(
        r'^([ \t]*)File "([^"]+)", line',
        lambda m: f"{m[1]}Cell {cells[m[2]]}, line" if m[2] in cells else m[0],
        traceback,
        flags=re.MULTILINE,
    )


def _cells() -> Mapping[str, int]:
    """The number of each cell that has run here, by the name of its source."""
    ipython = sys.modules.get("IPython")
    if ipython is None:
        return {}
    shell = getattr(ipython, "get_ipython", lambda: None)()
    return getattr(getattr(shell, "compile", None), "_filename_map", None) or {}


@functools.lru_cache(maxsize=1024)
def _place(file: str, line: int, function: str, cell: int | None) -> Place:
    return Place(file, line, function, cell)
