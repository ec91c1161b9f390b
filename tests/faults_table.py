"""Reads the table of faults in the documentation for the tests."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "faults.md"


def rows() -> list[list[str]]:
    """Return the fault, what happens, and the tests, for every row."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if len(row) == 3 and row[0] not in ("fault", "---")]


def named_tests() -> set[str]:
    """Return the names of all tests in the table."""
    return {name for _, _, cell in rows() for name in re.findall(r"`(test_\w+)`", cell)}
