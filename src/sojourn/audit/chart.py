"""The timeline as an SVG: memory over time, each session as a bar, each finding as a mark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from sojourn.audit.facts import Facts, SessionRecord
from sojourn.audit.finding import Finding
from sojourn.audit.text import short
from sojourn.values import format_bytes, format_seconds

WIDTH = 1160
GUTTER = 220  # for the labels on the left
RIGHT = 24
TOP = 34
MEMORY_HEIGHT = 170
GAP = 44
LANE = 22
BAR = 12
MOST_POINTS = 560
# With more sessions than this, those from one line share a lane.
MOST_LANES = 30
MOST_BARS = 3000

Lane = tuple[str, list[SessionRecord]]


def draw(findings: Sequence[Finding], facts: Facts) -> str:
    """The whole drawing. Colours are CSS variables of the page around it."""
    return _Drawing(findings, facts).svg()


class _Drawing:
    def __init__(self, findings: Sequence[Finding], facts: Facts) -> None:
        self.findings = findings
        self.facts = facts
        self.start = first_moment(facts)
        # At exit a program is cleaned up; what matters ends there.
        self.end = max(facts.exit_at or facts.ended_at, self.start + 1e-3)
        self.lanes = lanes_of(facts.sessions)
        self.bars_top = TOP + MEMORY_HEIGHT + GAP
        self.height = self.bars_top + LANE * max(1, len(self.lanes)) + 34
        self.numbers: dict[int, list[int]] = {}
        for number, finding in enumerate(findings, 1):
            serial = _marked_session(finding, facts)
            if serial is not None:
                self.numbers.setdefault(serial, []).append(number)

    def x(self, at: float) -> float:
        share = (min(max(at, self.start), self.end) - self.start) / (self.end - self.start)
        return round(GUTTER + share * (WIDTH - GUTTER - RIGHT), 1)

    def svg(self) -> str:
        parts = [
            f'<svg id="timeline" viewBox="0 0 {WIDTH} {self.height}" role="img" '
            f'aria-label="memory and sessions over time" data-left="{GUTTER}" '
            f'data-right="{WIDTH - RIGHT}" data-span="{self.end - self.start:.4f}">',
            '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
            'patternTransform="rotate(45)"><rect width="6" height="6" class="leak-back"/>'
            '<rect width="3" height="6" class="leak-line"/></pattern></defs>',
            *self._time_axis(),
            *self._memory(),
            *self._bars(),
            f'<line id="cursor" class="cursor" x1="0" x2="0" y1="{TOP}" '
            f'y2="{self.height - 30}" visibility="hidden"/>',
            "</svg>",
        ]
        return "\n".join(parts)

    def _time_axis(self) -> list[str]:
        bottom = self.height - 26
        parts = []
        offset = self.start - self.facts.began_at
        for at in ticks(offset, self.end - self.facts.began_at, 8):
            x = self.x(self.facts.began_at + at)
            parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP}" y2="{bottom}"/>')
            parts.append(
                f'<text class="tick" x="{x}" y="{bottom + 16}" text-anchor="middle">'
                f"{seconds_label(at)}</text>"
            )
        return parts

    def _memory(self) -> list[str]:
        points = thin([s for s in self.facts.samples if self.start <= s[0] <= self.end])
        label = f'<text class="label strong" x="0" y="{TOP - 14}">memory of the process</text>'
        if not points:
            return [label, f'<text class="label" x="0" y="{TOP + 20}">not measured here</text>']
        top = max(size for _, size in points) * 1.12 or 1.0
        base = TOP + MEMORY_HEIGHT

        def y(size: float) -> float:
            return round(base - size / top * MEMORY_HEIGHT, 1)

        parts = [label]
        parts += [
            f'<line class="grid" x1="{GUTTER}" x2="{WIDTH - RIGHT}" '
            f'y1="{y(size)}" y2="{y(size)}"/>'
            f'<text class="tick" x="{GUTTER - 8}" y="{y(size) + 4}" text-anchor="end">'
            f"{format_bytes(int(size)) if size else '0'}</text>"
            for size in byte_ticks(top)
        ]
        line = " ".join(f"{self.x(at)},{y(size)}" for at, size in points)
        first, last = self.x(points[0][0]), self.x(points[-1][0])
        parts.append(f'<polygon class="area" points="{first},{base} {line} {last},{base}"/>')
        parts.append(f'<polyline class="line" points="{line}"/>')
        peak_at, peak = max(points, key=lambda p: p[1])
        anchor = "end" if self.x(peak_at) > WIDTH - 160 else "start"
        shift = -8 if anchor == "end" else 8
        parts.append(
            f'<circle class="peak" cx="{self.x(peak_at)}" cy="{y(peak)}" r="3.5"/>'
            f'<text class="peak-label" x="{self.x(peak_at) + shift}" y="{y(peak) - 7}" '
            f'text-anchor="{anchor}">peak {format_bytes(peak)}</text>'
        )
        return parts

    def _bars(self) -> list[str]:
        parts = [f'<text class="label strong" x="0" y="{self.bars_top - 14}">sessions</text>']
        if not self.lanes:
            parts.append(f'<text class="label" x="0" y="{self.bars_top + 12}">none opened</text>')
        drawn = 0
        marks = []
        for row, (label, sessions) in enumerate(self.lanes):
            y = self.bars_top + row * LANE
            parts.append(
                f'<text class="label mono" x="0" y="{y + BAR - 1}">{escape(clip(label, 26))}'
                f"<title>{escape(label)}</title></text>"
            )
            for session in sessions:
                if drawn < MOST_BARS:
                    parts.append(self._bar(session, y))
                    drawn += 1
            marks += self._marks(sessions, y)
        # Marks last: they stay on top of bars of other sessions in the lane.
        return parts + marks

    def _bar(self, session: SessionRecord, y: int) -> str:
        until = session.closed_at if session.closed_at is not None else session.lost_at
        left = self.x(session.opened_at)
        right = self.x(self.end if until is None else until)
        kind = "bar-ok" if session.closed_at is not None or session.kept_by_library else "bar-leak"
        title = f"session {session.serial}, {short(session.place)}: {story(session, self.end)}"
        return (
            f'<rect class="{kind}" x="{left}" y="{y}" width="{max(2.0, right - left):.1f}" '
            f'height="{BAR}" rx="2"><title>{escape(title)}</title></rect>'
        )

    def _marks(self, sessions: list[SessionRecord], y: int) -> list[str]:
        numbers = {n: s for s in sessions for n in self.numbers.get(s.serial, ())}
        parts = []
        free: float = WIDTH
        # Before the bar, so that a short one is not covered; several go to the left.
        for number, session in sorted(numbers.items(), key=lambda pair: -pair[1].opened_at):
            finding = self.findings[number - 1]
            x = max(min(self.x(session.opened_at) - 11, free), GUTTER - 40)
            free = x - 18
            parts.append(
                f'<a href="#finding-{number}"><circle class="mark" cx="{x}" cy="{y + BAR / 2}" '
                f'r="8.5"/><text class="mark-text" x="{x}" y="{y + BAR / 2 + 3.6}" '
                f'text-anchor="middle">{number}</text>'
                f"<title>{escape(f'{finding.code} {finding.about.title}')}</title></a>"
            )
        return parts


def lanes_of(sessions: Sequence[SessionRecord]) -> list[Lane]:
    """A lane for each session; where they are many, one for each line that opens them."""
    if len(sessions) <= MOST_LANES:
        return [(f"{s.serial}  {short(s.place)}", [s]) for s in sessions]
    by_line: dict[str, list[SessionRecord]] = {}
    for session in sessions:
        by_line.setdefault(short(session.place), []).append(session)
    return [(f"{line}  x{len(group)}", group) for line, group in by_line.items()][:200]


def story(session: SessionRecord, end: float) -> str:
    """The life of a session in a few words."""
    if session.closed_at is not None:
        fate, until = "closed", session.closed_at
    elif session.kept_by_library:
        fate, until = f"kept by {session.library or 'a library'}", end
    elif session.replaced_by is not None:
        fate, until = f"replaced by session {session.replaced_by}", session.lost_at or end
    elif session.lost_at is not None and session.lost_at <= end:
        fate, until = "never closed", session.lost_at
    else:
        fate, until = "open at the end", end
    lived = format_seconds(max(0.0, until - session.opened_at))
    return f"{fate} after {lived}, {session.runs} runs"


def first_moment(facts: Facts) -> float:
    """Where the timeline begins: a long start without any session is left out."""
    end = facts.exit_at or facts.ended_at
    first = min((s.opened_at for s in facts.sessions), default=facts.began_at)
    begin = first - 0.06 * (end - first)
    return begin if begin - facts.began_at > 0.25 * (end - facts.began_at) else facts.began_at


def _marked_session(finding: Finding, facts: Facts) -> int | None:
    """The session to put the mark at: the newest that was there when it happened."""
    mine = [s for s in facts.sessions if s.serial in finding.sessions]
    there = [s for s in mine if s.opened_at <= finding.at] or mine
    return there[-1].serial if there else None


def thin(samples: Sequence[tuple[float, int]], most: int = MOST_POINTS) -> list[tuple[float, int]]:
    """At most `most` samples; each stands for its neighbours with the largest of their sizes."""
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
    """A tick of the time axis."""
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
    """The end of a text that is too long: paths differ there."""
    return text if len(text) <= most else "…" + text[-(most - 1) :]
