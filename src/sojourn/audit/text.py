"""Renders the report for a terminal, and sessions as plain values."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from typing import Any

from sojourn.audit.facts import Facts, SessionRecord
from sojourn.audit.finding import Finding
from sojourn.values import Place, format_bytes, format_seconds
from sojourn.values.places import relative

_BOLD, _DIM, _RED, _GREEN, _CYAN = "1", "2", "1;31", "1;32", "36"


def render(findings: Sequence[Finding], facts: Facts, colour: bool = False) -> str:
    """Every finding with its line, its callers and its cure, then a summary line."""
    paint = _paint if colour else _plain
    parts = [_one(finding, paint) for finding in findings]
    parts.append(summary(findings, facts, colour))
    return "\n\n".join(parts)


def summary(findings: Sequence[Finding], facts: Facts, colour: bool = False) -> str:
    """One line with the number of findings and sessions, the time and the peak memory."""
    paint = _paint if colour else _plain
    count = len(findings)
    head = f"{count} {'finding' if count == 1 else 'findings'}" if count else "nothing found"
    sessions = len(facts.sessions)
    watched = f"{sessions} {'session' if sessions == 1 else 'sessions'} watched"
    took = format_seconds(facts.seconds)
    peak = max((size for _, size in facts.samples), default=0)
    memory = f", peak {format_bytes(peak)}" if peak else ""
    return f"{paint(head, _RED if count else _GREEN)}: {watched} in {took}{memory}"


def session_to_dict(session: SessionRecord) -> dict[str, Any]:
    """Plain values, ready for JSON."""
    return {
        "serial": session.serial,
        "kind": session.kind,
        "file": session.place.file,
        "line": session.place.line,
        "opened_at": round(session.opened_at, 4),
        "closed_at": None if session.closed_at is None else round(session.closed_at, 4),
        "runs": session.runs,
        "grown_bytes": max(0, session.grown_bytes),
        "library": session.library,
        "scope": session.scope,
    }


def short(place: Place) -> str:
    """The place as the user would type it: as a relative path if that is shorter."""
    if place.cell is not None:
        return str(place)
    return f"{relative(place.file)}:{place.line}"


def _one(finding: Finding, paint: Any) -> str:
    title = finding.about.title
    count = f"  x{finding.count}" if finding.count > 1 else ""
    size = f"  {format_bytes(finding.bytes)}" if finding.bytes >= 2**20 else ""
    code = paint(finding.code, _RED)
    lines = [f"{paint(short(finding.place), _BOLD)}: {code} {title}{count}{size}"]
    source = linecache.getline(finding.place.file, finding.place.line).strip()
    if source:
        lines.append(f"  {paint('>', _CYAN)} {source}")
    lines.append(f"    {finding.message}")
    if finding.scope:
        lines.append(paint(f"    in {finding.scope}", _DIM))
    for place, ops in finding.lines:
        text = linecache.getline(place.file, place.line).strip()
        lines.append(f"    + {ops} ops  {short(place)}  {paint(text, _DIM)}")
    callers = [place for place in finding.stack if place != finding.place]
    lines += [
        paint(f"    called from {short(place)} in {place.function}", _DIM)
        for place in reversed(callers[-4:])
    ]
    lines.append(f"    {paint('cure:', _GREEN)} {finding.cure}")
    lines.append(paint(f"    more: {finding.about.more}", _DIM))
    return "\n".join(lines)


def _paint(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m"


def _plain(text: str, style: str) -> str:
    return text
