"""Renders the page of `sojourn report`: memory, latencies, receipts and incidents."""

from __future__ import annotations

import time
from collections.abc import Mapping
from html import escape
from typing import Any

from sojourn.audit.event_report.drawing import histogram, stepped, timeline
from sojourn.audit.event_report.story import SessionStory, Story, in_words
from sojourn.audit.skeleton import page, tiles_of
from sojourn.values import format_bytes, format_seconds

_MOST_ROWS = 1000
_MOST_HISTOGRAMS = 12
_MORE_STYLE = """
svg .bar-opening { fill: var(--soft); opacity: .55; }
.histograms { display: grid; grid-template-columns: repeat(auto-fill, minmax(320px, 1fr));
  gap: 14px; }
.histograms svg { min-width: 0; }
.histograms h3 { font-size: 14px; justify-content: space-between; }
.histograms .dim { font-weight: 400; font-variant-numeric: tabular-nums; }
.key.opening { height: 6px; background: var(--soft); opacity: .55; }
.key.died { width: 12px; border-radius: 50%; background: var(--mark); }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td.bad { color: var(--bad); } td.good { color: var(--good); }
"""


def render(story: Story, title: str = "") -> str:
    """The report as an HTML page."""
    sections = f"""<section class="panel">
<h2>Timeline</h2>
<p class="legend"><span class="key opening"></span>opening
<span class="key ok"></span>open
<span class="key leak"></span>not closed
<span class="key died"></span>worker died
<span id="reading" class="reading">{_since(story)}</span></p>
<div class="chart">{timeline(story)}</div>
</section>
{_latencies(story)}
<section class="panel">
<h2>Receipts</h2>
{_receipts(story)}
</section>
{_notable(story)}
<section class="panel">
<details><summary>All {sum(story.counts.values())} events by kind</summary>
{_counts(story)}</details>
</section>"""
    brand, samples = "sojourn report", stepped(story.held)
    return page(brand, title or "events", _tiles(story), sections, samples, 0.0, _MORE_STYLE)


def _since(story: Story) -> str:
    if not story.began:
        return ""
    return "from " + time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(story.began))


def _tiles(story: Story) -> str:
    sessions = story.sessions
    open_still = sum(session.closed_at is None for session in sessions)
    died = sum(len(session.broke_at) for session in sessions)
    receipts = [session.receipt for session in sessions if session.receipt]
    held = sum(receipt.get("held_bytes") or 0 for receipt in receipts)
    returned = sum(receipt.get("returned_bytes") or 0 for receipt in receipts)
    tiles = [
        (str(len(sessions)), "sessions", False),
        (str(sum(session.runs for session in sessions)), "runs", False),
        (format_bytes(story.peak_bytes), "held at the peak", False),
        (_share(returned, held), "returned at closing", returned < held),
        (str(open_still), "not closed", bool(open_still)),
        (str(died), "workers died", bool(died)),
        (format_seconds(story.seconds), "recorded", False),
    ]
    return tiles_of(tiles)


def _share(part: int, whole: int) -> str:
    """A share in percent. Less than the whole is never rounded up to 100%."""
    if not whole:
        return "-"
    return "100%" if part >= whole else f"{part * 1000 // whole / 10:g}%"


def _latencies(story: Story) -> str:
    busiest = story.latencies()
    if not busiest:
        return ""
    boxes = [
        f'<div><h3>{escape(name)}<span class="dim">{in_words(counts)}</span></h3>'
        f"{histogram(counts)}</div>"
        for name, counts in busiest[:_MOST_HISTOGRAMS]
    ]
    more = len(busiest) - len(boxes)
    note = f'<p class="dim">The busiest; {more} more are left out.</p>' if more > 0 else ""
    return (
        '<section class="panel"><h2>How long runs took</h2>'
        f'<div class="histograms">{"".join(boxes)}</div>{note}</section>'
    )


def _receipts(story: Story) -> str:
    if not story.sessions:
        return "<p>No session was opened.</p>"
    rows = "".join(_row(session, story.seconds) for session in story.sessions[:_MOST_ROWS])
    more = len(story.sessions) - _MOST_ROWS
    note = f"<p>and {more} more</p>" if more > 0 else ""
    head = "".join(
        f'<th class="{"number" if number else ""}">{title}</th>'
        for title, number in (
            ("session", False), ("opened at", False), ("pid", True), ("opened", True),
            ("opening", True), ("life", True), ("runs", True), ("held", True),
            ("returned", True), ("closed in", True), ("how", False), ("left behind", False),
        )
    )  # fmt: skip
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{note}"
    )


def _row(session: SessionStory, end: float) -> str:
    receipt = session.receipt or {}
    until = end if session.closed_at is None else session.closed_at
    opening = None if session.ready_at is None else session.ready_at - session.opened_at
    cells = [
        (escape(session.name), ""),
        (escape(session.place), "mono"),
        (str(session.pid), "number"),
        (f"{session.opened_at:.2f} s", "number"),
        ("" if opening is None else format_seconds(opening), "number"),
        (format_seconds(until - session.opened_at), "number"),
        (str(session.runs), "number"),
    ]
    if receipt:
        cells += [
            (format_bytes(receipt.get("held_bytes") or 0), "number"),
            (format_bytes(receipt.get("returned_bytes") or 0), "number"),
            (format_seconds(receipt.get("seconds") or 0.0), "number"),
        ]
    else:
        cells += [(format_bytes(session.peak_bytes), "number"), ("", ""), ("", "")]
    cells.append((session.fate, "" if session.fate == "closed" else "bad"))
    if receipt:
        clean = bool(receipt.get("clean"))
        cells.append(("nothing" if clean else _left(receipt), "good" if clean else "bad"))
    else:
        cells.append(("no receipt", "bad"))
    return "<tr>" + "".join(f'<td class="{kind}">{text}</td>' for text, kind in cells) + "</tr>"


def _left(receipt: Mapping[str, Any]) -> str:
    """A list of the things that a close left behind."""
    kept = (receipt.get("held_bytes") or 0) - (receipt.get("returned_bytes") or 0)
    residue = receipt.get("residue") or {}
    things = [
        f"{len(found) if isinstance(found, list) else found} {what}"
        for what, found in residue.items()
        if found and what in ("processes", "segments", "descriptors")
    ]
    return escape(", ".join(([format_bytes(kept)] if kept > 0 else []) + things) or "something")


def _notable(story: Story) -> str:
    if not story.incidents:
        return ""
    rows = "".join(
        f'<tr><td class="number">{incident.at:.2f} s</td><td class="mono">{escape(incident.kind)}'
        f'</td><td>{escape(incident.session)}</td><td class="mono">{escape(incident.place)}</td>'
        f"<td>{escape(incident.in_words)}</td></tr>"
        for incident in story.incidents[:_MOST_ROWS]
    )
    return (
        '<section class="panel"><h2>What went wrong</h2><div class="scroll"><table><tbody>'
        f"{rows}</tbody></table></div></section>"
    )


def _counts(story: Story) -> str:
    rows = "".join(
        f'<tr><td class="mono">{escape(kind)}</td><td class="number">{count}</td></tr>'
        for kind, count in sorted(story.counts.items())
    )
    lost = f"<p>{story.unreadable} lines could not be read.</p>" if story.unreadable else ""
    return f'<table style="width:auto"><tbody>{rows}</tbody></table>{lost}'
