"""Builds a report as one self-contained page, which needs no network and no other file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape

from sojourn._version import __version__
from sojourn.audit.canvas import Sample
from sojourn.audit.style import SCRIPT, STYLE


def page(
    brand: str,
    title: str,
    tiles: str,
    sections: str,
    samples: Iterable[Sample],
    before: float = 0.0,
    more_style: str = "",
) -> str:
    """The page: a heading with tiles, the sections, and the samples that its script displays."""
    version = escape(__version__)
    plain = json.dumps([[round(at, 3), size] for at, size in samples])
    text = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<meta name="generator" content="sojourn {version}">
<title>{brand}: {escape(title)}</title>
<style>{STYLE}{more_style}</style>
</head>
<body>
<header>
<p class="brand">{brand}</p>
<h1>{escape(title)}</h1>
<div class="tiles">{tiles}</div>
</header>
<main>
{sections}
</main>
<footer>made by sojourn {version}</footer>
<script>const before = {before:.3f};
const samples = {plain};{SCRIPT}</script>
</body>
</html>
"""
    # File names may contain bytes that are not valid text; they must not prevent writing the page.
    return text.encode(errors="backslashreplace").decode()


def tiles_of(tiles: Iterable[tuple[str, str, bool]]) -> str:
    """Tiles of (value, label, whether the value is bad)."""
    return "".join(
        f'<div class="tile{" bad" if bad else ""}"><b>{escape(value)}</b>{escape(label)}</div>'
        for value, label, bad in tiles
    )
