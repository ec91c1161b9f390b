"""Receipts and leaks: the stays in the recorded events, as a drawing and as exports."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping
from typing import Any

from sojourn.audit.event_report.drawing import timeline
from sojourn.audit.event_report.story import Story, tell
from sojourn.values import Residue

MOST_BYTES = 16 * 2**20  # read from the end of a file of events
COLUMNS = (
    *("at", "session", "held_bytes", "returned_bytes", "peak_bytes", "seconds", "runs"),
    *("how", "clean", "left_behind", "note"),
)


def story_of_file(path: str) -> Story:
    """The story in the last events of a file."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - MOST_BYTES))
        lines = file.read(MOST_BYTES).decode(errors="replace").splitlines()
    return tell(lines[1:] if size > MOST_BYTES else lines)


def drawing(story: Story) -> str:
    """The drawing of `sojourn report`, as an SVG document."""
    return timeline(story).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)


def row(receipt: Mapping[str, Any]) -> dict[str, Any]:
    """One receipt as a row of the table and the exports."""
    found = {name: receipt.get(name) for name in COLUMNS}
    found["left_behind"] = "" if receipt.get("clean") else _left(receipt)
    return found


def _left(receipt: Mapping[str, Any]) -> str:
    residue = receipt.get("residue")
    fields = residue if isinstance(residue, dict) else {}
    return str(Residue(**{k: v for k, v in fields.items() if k in Residue.__annotations__}))


def to_csv(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """A CSV table; text that a spreadsheet would take for a formula is marked as text."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for one in rows:
        writer.writerow([_cell(one[name]) for name in COLUMNS])
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    return (
        f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t") else value
    )
