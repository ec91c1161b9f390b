"""HTML for sessions, receipts and signatures in a notebook.

It is plain HTML with inline styles: no scripts, no external resources, and colours that are based
on the page's own text colour, so that light and dark themes both work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

GOOD, BAD, CALM = "#2a9d5c", "#e04f3d", "#5a8fd6"

_CARD = (
    "display:inline-block;min-width:22em;padding:.6em .9em;border:1px solid rgba(128,128,128,.35);"
    "border-radius:6px;font-size:90%;line-height:1.5"
)
_CELL = "padding:.1em 1.2em .1em 0;border:0;background:none;text-align:left;vertical-align:top"
_HEAD = f"{_CELL};opacity:.65;font-weight:normal"
_CODE = "font-family:ui-monospace,monospace"


def card(kind: str, name: str, badge: tuple[str, str], *parts: str) -> str:
    """Return a frame with a heading: the kind of object, its name, and its state in colour."""
    word, colour = badge
    heading = (
        f'<div style="margin-bottom:.3em"><span style="opacity:.65">{escape(kind)}</span> '
        f"<strong>{escape(name)}</strong> "
        f'<span style="color:{colour};float:right;margin-left:2em">&#9679; {escape(word)}</span>'
        "</div>"
    )
    return f'<div style="{_CARD}">{heading}{"".join(parts)}</div>'


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Return a table of labels and values."""
    return _table(_row([(_HEAD, what), (_CELL, value)]) for what, value in rows if value)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with column headings, whose cells are in a monospace font."""
    head = _row([(_HEAD, column) for column in columns])
    code = f"{_CELL};{_CODE}"
    return _table([head, *(_row([(code, cell) for cell in row]) for row in rows)])


def bar(share: float, colour: str) -> str:
    """Return a horizontal bar that is filled to this share."""
    width = max(0.0, min(1.0, share)) * 100
    return (
        '<div style="height:4px;border-radius:2px;background:rgba(128,128,128,.25);margin:.3em 0">'
        f'<div style="height:4px;border-radius:2px;width:{width:.1f}%;background:{colour}"></div>'
        "</div>"
    )


def _row(cells: Iterable[tuple[str, str]]) -> str:
    inside = "".join(f'<td style="{style}">{escape(text)}</td>' for style, text in cells)
    return f'<tr style="background:none">{inside}</tr>'


def _table(rows: Iterable[str]) -> str:
    style = "border-collapse:collapse;border:0;margin:0;color:inherit;font-size:inherit"
    return f'<table style="{style}"><tbody>{"".join(rows)}</tbody></table>'
