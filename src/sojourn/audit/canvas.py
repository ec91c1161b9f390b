"""The common parts of the drawings of audit and report: memory above bars, over one time axis.

The drawings are SVG; their colours are CSS variables of the page around them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from sojourn.values import format_bytes

WIDTH = 1160
GUTTER = 220  # for the labels on the left
RIGHT = 24
TOP = 34
MEMORY_HEIGHT = 170
GAP = 44
LANE = 22
BAR = 12

Sample = tuple[float, int]


class Canvas:
    """A drawing with time from left to right, the memory curve on top and lanes for bars below."""

    def __init__(self, start: float, end: float, lanes: int, zero: float = 0.0) -> None:
        self.start, self.end, self.zero = start, end, zero
        self.bars_top = TOP + MEMORY_HEIGHT + GAP
        self.height = self.bars_top + LANE * max(1, lanes) + 34

    def x(self, at: float) -> float:
        """The x coordinate of a moment."""
        share = (min(max(at, self.start), self.end) - self.start) / (self.end - self.start)
        return round(GUTTER + share * (WIDTH - GUTTER - RIGHT), 1)

    def svg(self, parts: Iterable[str]) -> str:
        """The whole drawing."""
        return "\n".join(
            [
                f'<svg id="timeline" viewBox="0 0 {WIDTH} {self.height}" role="img" '
                f'aria-label="memory and sessions over time" data-left="{GUTTER}" '
                f'data-right="{WIDTH - RIGHT}" data-span="{self.end - self.start:.4f}">',
                '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
                'patternTransform="rotate(45)"><rect width="6" height="6" class="leak-back"/>'
                '<rect width="3" height="6" class="leak-line"/></pattern></defs>',
                *self._time_axis(),
                *parts,
                f'<line id="cursor" class="cursor" x1="0" x2="0" y1="{TOP}" '
                f'y2="{self.height - 30}" visibility="hidden"/>',
                "</svg>",
            ]
        )

    def _time_axis(self) -> list[str]:
        bottom = self.height - 26
        parts = []
        for at in ticks(self.start - self.zero, self.end - self.zero, 8):
            x = self.x(self.zero + at)
            parts.append(
                f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP}" y2="{bottom}"/>'
                f'<text class="tick" x="{x}" y="{bottom + 16}" text-anchor="middle">'
                f"{seconds_label(at)}</text>"
            )
        return parts

    def memory(self, title: str, points: Sequence[Sample]) -> list[str]:
        """The memory curve with its scale and its peak."""
        label = f'<text class="label strong" x="0" y="{TOP - 14}">{title}</text>'
        if not points:
            return [label, f'<text class="label" x="0" y="{TOP + 20}">not measured here</text>']
        top = max(max(size for _, size in points) * 1.12, 2.0**20)
        base = TOP + MEMORY_HEIGHT

        def y(size: float) -> float:
            return round(base - size / top * MEMORY_HEIGHT, 1)

        parts = [label]
        parts += [
            f'<line class="grid" x1="{GUTTER}" x2="{WIDTH - RIGHT}" y1="{y(size)}" y2="{y(size)}"/>'
            f'<text class="tick" x="{GUTTER - 8}" y="{y(size) + 4}" text-anchor="end">'
            f"{format_bytes(int(size)) if size else '0'}</text>"
            for size in byte_ticks(top)
        ]
        line = " ".join(f"{self.x(at)},{y(size)}" for at, size in points)
        first, last = self.x(points[0][0]), self.x(points[-1][0])
        parts.append(f'<polygon class="area" points="{first},{base} {line} {last},{base}"/>')
        parts.append(f'<polyline class="line" points="{line}"/>')
        peak_at, peak = max(points, key=lambda point: point[1])
        if peak:
            is_right = self.x(peak_at) > WIDTH - 160
            parts.append(
                f'<circle class="peak" cx="{self.x(peak_at)}" cy="{y(peak)}" r="3.5"/>'
                f'<text class="peak-label" x="{self.x(peak_at) + (-8 if is_right else 8)}" '
                f'y="{y(peak) - 7}" text-anchor="{"end" if is_right else "start"}">'
                f"peak {format_bytes(peak)}</text>"
            )
        return parts

    def lane(self, row: int, label: str) -> tuple[int, str]:
        """The y coordinate of a lane, and its label as SVG."""
        y = self.bars_top + row * LANE
        return y, (
            f'<text class="label mono" x="0" y="{y + BAR - 1}">{escape(clip(label, 27))}'
            f"<title>{escape(label)}</title></text>"
        )

    def heading(self) -> str:
        """The heading above the lanes."""
        return f'<text class="label strong" x="0" y="{self.bars_top - 14}">sessions</text>'


def thin(samples: Sequence[Sample], most: int) -> list[Sample]:
    """At most `most` samples; each represents several neighbours by their largest size."""
    stride = -(-len(samples) // most) or 1
    chunks = [samples[at : at + stride] for at in range(0, len(samples), stride)]
    return [(chunk[0][0], max(size for _, size in chunk)) for chunk in chunks]


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers from `low` to `high`, about `most` of them."""
    step, factor = 1e-3, 1
    while (high - low) / (step * factor) > most:
        factor = {1: 2, 2: 5, 5: 10}[factor]
        if factor == 10:
            step, factor = step * 10, 1
    step *= factor
    return [n * step for n in range(math.ceil(low / step - 1e-9), int(high / step) + 1)]


def seconds_label(at: float) -> str:
    """The label of a tick on the time axis."""
    if at == 0:
        return "0"
    return f"{at:g} s" if at >= 0.1 else f"{at * 1e3:g} ms"


def byte_ticks(top: float) -> list[float]:
    """Powers of two from 0 to `top`, evenly spaced, about four of them."""
    step = 2.0**20
    while top / step > 5:
        step *= 2
    return [n * step for n in range(int(top / step) + 1)]


def clip(text: str, most: int) -> str:
    """Shorten a text to its last `most` characters, because paths differ at the end."""
    return text if len(text) <= most else "…" + text[-(most - 1) :]
