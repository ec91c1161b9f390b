"""Text that is safe to show on a terminal."""

from __future__ import annotations

import os
from typing import IO, Any


def plain(text: str) -> str:
    """Escape control characters: a name must not move the cursor, change colours or fake a line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def wants_colour(stream: IO[Any]) -> bool:
    """Whether this is a terminal whose user has not asked for none (no-color.org: NO_COLOR is
    there, and is not empty)."""
    return stream.isatty() and not os.environ.get("NO_COLOR")
