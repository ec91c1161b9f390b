"""Draws the timeline as an SVG: memory over time, sessions as bars, findings as marks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from sojourn.audit.canvas import BAR, GUTTER, WIDTH, Canvas, thin
from sojourn.audit.facts import Facts, SessionRecord
from sojourn.audit.finding import Finding
from sojourn.audit.text import short
from sojourn.values import format_seconds

MOST_POINTS = 560
# With more sessions than this, the sessions from one line share a lane.
MOST_LANES = 30
MOST_BARS = 3000

Lane = tuple[str, list[SessionRecord]]


def draw(findings: Sequence[Finding], facts: Facts) -> str:
    """The whole timeline as SVG."""
    return _Drawing(findings, facts).svg()


class _Drawing:
    def __init__(self, findings: Sequence[Finding], facts: Facts) -> None:
        self.findings = findings
        self.facts = facts
        start = first_moment(facts)
        # Only clean-up follows the program's exit; the drawing ends there.
        self.end = max(facts.exit_at or facts.ended_at, start + 1e-3)
        self.lanes = lanes_of(facts.sessions)
        self.canvas = Canvas(start, self.end, len(self.lanes), zero=facts.began_at)
        self.x = self.canvas.x
        self.numbers: dict[int, list[int]] = {}
        for number, finding in enumerate(findings, 1):
            serial = _marked_session(finding, facts)
            if serial is not None:
                self.numbers.setdefault(serial, []).append(number)

    def svg(self) -> str:
        memory = self.canvas.memory("memory of the process", shown_samples(self.facts))
        return self.canvas.svg([*memory, *self._bars()])

    def _bars(self) -> list[str]:
        parts = [self.canvas.heading()]
        if not self.lanes:
            y = self.canvas.bars_top + 12
            parts.append(f'<text class="label" x="0" y="{y}">none opened</text>')
        drawn = 0
        marks = []
        for row, (label, sessions) in enumerate(self.lanes):
            y, text = self.canvas.lane(row, label)
            parts.append(text)
            for session in sessions:
                if drawn < MOST_BARS:
                    parts.append(self._bar(session, y))
                    drawn += 1
            marks += self._marks(sessions, y)
        # Marks last, so that they are drawn on top of bars of other sessions in the lane.
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
        # Left of the bar, so that a short bar is not covered; more marks go further left.
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
    """A lane for each session; if there are many sessions, one for each line that opens them."""
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
    """The session that gets the finding's mark: the newest one opened by that time."""
    mine = [s for s in facts.sessions if s.serial in finding.sessions]
    there = [s for s in mine if s.opened_at <= finding.at] or mine
    return there[-1].serial if there else None


def shown_samples(facts: Facts) -> list[tuple[float, int]]:
    """The memory samples that the timeline shows."""
    start, end = first_moment(facts), facts.exit_at or facts.ended_at
    return thin([s for s in facts.samples if start <= s[0] <= end], MOST_POINTS)
