"""Text that is safe to show on a terminal."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import IO, Any


def plain(text: str) -> str:
    """Escape control characters: a name must not move the cursor, change colours or fake a line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def in_columns(rows: Sequence[Sequence[str]], numbers: Collection[int] = ()) -> list[str]:
    """Format rows as lines with aligned columns; the columns in `numbers` are right-aligned."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        cells = zip(row, widths, strict=True)
        padded = (f"{c:>{w}}" if n in numbers else f"{c:<{w}}" for n, (c, w) in enumerate(cells))
        return "  ".join(padded).rstrip()

    return [line(row) for row in rows]


def wants_colour(stream: IO[Any] | None) -> bool:
    """Whether the stream is a terminal and the user has not disabled colours (no-color.org: by
    NO_COLOR, if it is not empty)."""
    return stream is not None and stream.isatty() and not os.environ.get("NO_COLOR")
