"""Draws the page's SVGs: memory and sessions over time, and histograms of step times."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from sojourn.audit.canvas import BAR, Canvas, Sample, thin
from sojourn.audit.event_report.story import SessionStory, Story
from sojourn.probes.status_page import bucket_seconds, quantile
from sojourn.values import format_seconds

MOST_LANES = 40
MOST_POINTS = 800

Lane = tuple[str, list[SessionStory]]
Scale = Callable[[float], float]


def timeline(story: Story) -> str:
    """Memory of all sessions over time, and each session as a bar."""
    lanes = lanes_of(story.sessions)
    end = story.shown_seconds
    canvas = Canvas(0.0, end, len(lanes))
    held = stepped(story.held)
    parts = canvas.memory("held by all sessions", [*held, (end, held[-1][1])])
    parts.append(canvas.heading())
    for row, (label, sessions) in enumerate(lanes):
        y, text = canvas.lane(row, label)
        parts.append(text)
        parts += [_bar(session, y, canvas.x, end) for session in sessions]
    return canvas.svg(parts)


def _bar(session: SessionStory, y: int, x: Scale, end: float) -> str:
    left = x(session.opened_at)
    right = x(end if session.closed_at is None else session.closed_at)
    ready = right if session.ready_at is None else x(session.ready_at)
    title = f"<title>{escape(life(session, end))}</title>"
    kind = "bar-leak" if session.closed_at is None else "bar-ok"
    parts = [
        f'<rect class="bar-opening" x="{left}" y="{y + 3}" width="{max(1.0, ready - left):.1f}" '
        f'height="{BAR - 6}" rx="1">{title}</rect>'
    ]
    if session.ready_at is not None:
        parts.append(
            f'<rect class="{kind}" x="{ready}" y="{y}" width="{max(2.0, right - ready):.1f}" '
            f'height="{BAR}" rx="2">{title}</rect>'
        )
    parts += [
        f'<circle class="mark" cx="{x(at)}" cy="{y + BAR / 2}" r="5">'
        f"<title>the worker died {format_seconds(at)} after the start</title></circle>"
        for at in session.broke_at
    ]
    return "".join(parts)


def life(session: SessionStory, end: float) -> str:
    """A one-line description of a session's life."""
    until = end if session.closed_at is None else session.closed_at
    lived = format_seconds(until - session.opened_at)
    runs = f"{session.runs} run{'s' * (session.runs != 1)}"
    return f"{session.name}, {session.place}: {session.fate} after {lived}, {runs}"


def lanes_of(sessions: Sequence[SessionStory]) -> list[Lane]:
    """A lane for each session; if there are many sessions, one for each line that opened them."""
    if len(sessions) <= MOST_LANES:
        return [(session.name, [session]) for session in sessions]
    by_place: dict[str, list[SessionStory]] = {}
    for session in sessions:
        by_place.setdefault(session.place, []).append(session)
    return [(f"{place}  x{len(group)}", group) for place, group in by_place.items()][:200]


def stepped(samples: Sequence[Sample]) -> list[Sample]:
    """The corners of a step curve, which keeps each value until the next sample."""
    corners: list[Sample] = []
    for at, size in thin(samples, MOST_POINTS):
        if corners:
            corners.append((at, corners[-1][1]))
        corners.append((at, size))
    return corners


def histogram(counts: Sequence[int]) -> str:
    """A histogram of step times. Each bar covers twice the time range of the one before."""
    shown = [index for index, count in enumerate(counts) if count]
    if not shown:
        return ""
    first, last = max(0, shown[0] - 1), min(len(counts) - 1, shown[-1] + 1)
    width, height, base = 360.0, 130, 104
    step = width / (last - first + 1)
    most = max(counts)
    every = max(1, math.ceil(62 / step))  # as many labels as fit beside each other
    parts = [f'<svg class="histogram" viewBox="0 0 {width:.0f} {height}" role="img">']
    for index in range(first, last + 1):
        left = (index - first) * step
        tall = counts[index] / most * (base - 22)
        low = bucket_seconds(index - 1) if index else 0.0
        title = f"{counts[index]} steps from {format_seconds(low)} to "
        title += format_seconds(bucket_seconds(index))
        if counts[index]:
            parts.append(
                f'<rect class="bar-ok" x="{left + 1:.1f}" y="{base - max(1.5, tall):.1f}" '
                f'width="{step - 2:.1f}" height="{max(1.5, tall):.1f}" rx="1">'
                f"<title>{title}</title></rect>"
            )
        if index > first and (index - first) % every == 0:
            parts.append(
                f'<text class="tick" x="{left:.1f}" y="{base + 16}" text-anchor="middle">'
                f"{format_seconds(low) if low else '0'}</text>"
            )
    parts.append(f'<line class="grid" x1="0" x2="{width:.0f}" y1="{base}" y2="{base}"/>')
    for share, label in ((0.5, "p50"), (0.99, "p99")):
        at = quantile(list(counts), share)
        x = (_position(at) - first) * step
        parts.append(
            f'<line class="cursor" x1="{x:.1f}" x2="{x:.1f}" y1="14" y2="{base}"/>'
            f'<text class="peak-label" x="{min(x + 3, width - 24):.1f}" '
            f'y="{12 if share == 0.5 else 24}">{label}</text>'
        )
    parts.append("</svg>")
    return "".join(parts)


def _position(seconds: float) -> float:
    """The fractional index of a duration among the buckets."""
    index = 0
    while bucket_seconds(index) < seconds:
        index += 1
    low = bucket_seconds(index - 1) if index else 0.0
    return index + (seconds - low) / (bucket_seconds(index) - low)
