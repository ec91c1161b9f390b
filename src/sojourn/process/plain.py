"""Words of an untrusted model, made fit for a terminal and a log."""

from __future__ import annotations


def plain(text: str, most: int | None = None) -> str:
    """Without what could steer a terminal or disguise itself, and no longer than `most`.

    Such characters are written as Python writes them: an escape becomes `\\x1b`.
    """
    cut = "" if most is None or len(text) <= most else f" ... ({len(text) - most} more characters)"
    text = text[:most]
    if not text.isprintable():
        text = "".join(
            c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode()
            for c in text
        )
    return text + cut
