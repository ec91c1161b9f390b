"""Renders the page of `sojourn audit`: the timeline, the findings and the sessions."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from html import escape

from sojourn.audit.chart import draw, first_moment, shown_samples, story
from sojourn.audit.facts import Facts
from sojourn.audit.finding import Finding
from sojourn.audit.skeleton import page, tiles_of
from sojourn.audit.text import short
from sojourn.values import Place, format_bytes, format_seconds

_MOST_ROWS = 1000


def render(findings: Sequence[Finding], facts: Facts, title: str = "") -> str:
    """The report as an HTML page."""
    start = first_moment(facts)
    sections = f"""<section class="panel">
<h2>Timeline</h2>
<p class="legend"><span class="key ok"></span>closed
<span class="key leak"></span>not closed
<span class="key mark">1</span>finding
<span id="reading" class="reading">{_left_out(facts)}</span></p>
<div class="chart">{draw(findings, facts)}</div>
</section>
<section>
<h2>Findings</h2>
{_cards(findings, facts)}
</section>
<section>
<details class="panel"><summary>All {len(facts.sessions)} sessions</summary>
{_table(facts)}</details>
</section>"""
    return page(
        "sojourn audit",
        title or "a block of code",
        _tiles(findings, facts),
        sections,
        [(at - start, size) for at, size in shown_samples(facts)],
        before=start - facts.began_at,
    )


def _left_out(facts: Facts) -> str:
    start = first_moment(facts)
    if start == facts.began_at:
        return ""
    return f"the first {format_seconds(start - facts.began_at)} had no session and are left out"


def _tiles(findings: Sequence[Finding], facts: Facts) -> str:
    unclosed = sum(s.closed_at is None and not s.kept_by_library for s in facts.sessions)
    peak = max((size for _, size in facts.samples), default=0)
    took = format_seconds(facts.seconds)
    tiles = [
        (str(len(findings)), "finding" if len(findings) == 1 else "findings", bool(findings)),
        (str(len(facts.sessions)), "sessions opened", False),
        (str(unclosed), "of them not closed", bool(unclosed)),
        (format_bytes(peak) if peak else "?", "peak memory", False),
        (took, "watched", False),
    ]
    return tiles_of(tiles)


def _cards(findings: Sequence[Finding], facts: Facts) -> str:
    if not findings:
        opened = "" if facts.sessions else " No session was opened."
        return f'<p class="panel fine">Nothing found.{opened}</p>'
    return "\n".join(_card(number, finding) for number, finding in enumerate(findings, 1))


def _card(number: int, finding: Finding) -> str:
    about = finding.about
    facts = [f"{finding.count} times"] if finding.count > 1 else []
    if finding.bytes >= 2**20:
        facts.append(format_bytes(finding.bytes))
    chips = "".join(f'<span class="chip">{escape(fact)}</span>' for fact in facts)
    callers = [place for place in finding.stack if place != finding.place]
    stack = "".join(f"<li>{_at(place)}</li>" for place in reversed(callers))
    if stack:
        stack = f"<details><summary>called from</summary><ul>{stack}</ul></details>"
    lines = "".join(f"<li>{ops} ops added by {_at(place)}</li>" for place, ops in finding.lines)
    scope = f'<p class="scope">in {escape(finding.scope)}</p>' if finding.scope else ""
    return f"""<article class="panel card" id="finding-{number}">
<h3><span class="key mark">{number}</span><span class="code">{finding.code}</span>
{escape(about.title)} {chips}</h3>
<p class="where">{escape(short(finding.place))}{_in(finding.place)}</p>
{_excerpt(finding.place)}
<p>{escape(finding.message)}.</p>{scope}
{f'<ul class="lines">{lines}</ul>' if lines else ""}
{stack}
<p class="why"><b>Why</b> {_ticked(about.cause)}</p>
<p class="cure"><b>Cure</b> {_ticked(about.cure)}</p>
<p class="docs">more: <code>{escape(about.more)}</code></p>
</article>"""


def _excerpt(place: Place, around: int = 2) -> str:
    rows = []
    for line in range(max(1, place.line - around), place.line + around + 1):
        text = linecache.getline(place.file, line).rstrip("\n")
        if text or line <= place.line:
            hit = ' class="hit"' if line == place.line else ""
            rows.append(f"<span{hit}><i>{line}</i>{escape(text) or ' '}</span>")
    if not linecache.getline(place.file, place.line):
        return ""
    return f"<pre>{''.join(rows)}</pre>"


def _table(facts: Facts) -> str:
    end = facts.exit_at or facts.ended_at
    rows = "".join(
        f"<tr><td>{s.serial}</td><td>{escape(s.kind)}</td><td class=mono>{escape(short(s.place))}"
        f"</td><td>{s.opened_at - facts.began_at:.2f} s</td><td>{escape(story(s, end))}</td>"
        f"<td>{format_bytes(max(0, s.grown_bytes))}</td><td>{escape(s.library)}</td></tr>"
        for s in facts.sessions[:_MOST_ROWS]
    )
    more = len(facts.sessions) - _MOST_ROWS
    note = f"<p>and {more} more</p>" if more > 0 else ""
    return (
        '<div class="scroll"><table><thead><tr><th>#</th><th>kind</th><th>opened by</th>'
        "<th>at</th><th>life</th><th>grew by</th><th>made by</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div>{note}"
    )


def _at(place: Place) -> str:
    text = linecache.getline(place.file, place.line).strip()
    source = f" <code>{escape(text)}</code>" if text else ""
    return f"<span class=mono>{escape(short(place))}</span>{_in(place)}{source}"


def _in(place: Place) -> str:
    if not place.function or place.function == "<module>":
        return ""
    return f" <span class=dim>in {escape(place.function)}</span>"


def _ticked(text: str) -> str:
    """Turn `code` in backticks into HTML."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{p}</code>" if n % 2 else p for n, p in enumerate(pieces))
