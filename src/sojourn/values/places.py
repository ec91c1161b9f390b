"""A place in the user's source: the file and line that opened, closed or borrowed a session.

IPython gives the cells of a notebook the names of files that do not exist; readers are shown
`cell 9` instead.
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
    cell: int | None = None  # the number of the notebook cell, if the place is in one

    def __str__(self) -> str:
        if self.cell is not None:
            return f"cell {self.cell}, line {self.line}"
        return f"{self.file}:{self.line}" if self.line else self.file


NOWHERE = Place("<unknown>", 0)
AT_EXIT = Place("the exit of the program", 0)


def caller(ours: str | tuple[str, ...] = HERE) -> Place:
    """Return the innermost running line outside sojourn, or outside files with these prefixes."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        # contextlib calls our context managers; the user's line is one frame further out.
        if not file.startswith(ours) and not file.endswith("contextlib.py"):
            return at(file, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return NOWHERE


def at(file: str, line: int, function: str) -> Place:
    """Return a place, with the cell's current number: a cell that runs again gets a new one."""
    return _place(file, line, function, _cells().get(file))


def relative(file: str) -> str:
    """Return the file's path relative to the current folder if it is below that folder."""
    if not os.path.isabs(file):
        return file
    try:
        name = os.path.relpath(file)
    except OSError:  # the current folder has been removed
        return file
    return file if name.startswith("..") else name


def with_cells(traceback: str) -> str:
    """Replace the file names of notebook cells in a traceback by the cells' numbers."""
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
    """Return the number of each notebook cell that has run here, by its file name."""
    ipython = sys.modules.get("IPython")
    if ipython is None:
        return {}
    shell = getattr(ipython, "get_ipython", lambda: None)()
    return getattr(getattr(shell, "compile", None), "_filename_map", None) or {}


@functools.lru_cache(maxsize=1024)
def _place(file: str, line: int, function: str, cell: int | None) -> Place:
    return Place(file, line, function, cell)
