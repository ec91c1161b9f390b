"""Text from an untrusted model, made safe for a terminal and a log."""

from __future__ import annotations


def plain(text: str, most: int | None = None) -> str:
    """Escape characters that could control a terminal or are invisible, and cut the text to `most`.

    They are written as Python escapes them: the escape character becomes `\\x1b`.
    """
    cut = "" if most is None or len(text) <= most else f" ... ({len(text) - most} more characters)"
    text = text[:most]
    if not text.isprintable():
        text = "".join(
            c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode()
            for c in text
        )
    return text + cut
