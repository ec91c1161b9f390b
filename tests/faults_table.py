"""The table of faults in the documentation, read for the tests."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "faults.md"


def rows() -> list[list[str]]:
    """Fault, what happens, tests: of every row."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if len(row) == 3 and row[0] not in ("fault", "---")]


def named_tests() -> set[str]:
    """The names of all tests in it."""
    return {name for _, _, cell in rows() for name in re.findall(r"`(test_\w+)`", cell)}
