"""Turns facts into findings. Pure: no clock, no TensorFlow, no files.

A session that was never closed gets exactly one code: replaced, left installed, open at exit, or
never closed. The other findings concern sessions and graphs whether or not they are closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from sojourn.audit.codes import (
    BORROWED_DEFAULT,
    GRAPH_GROWS,
    INTERACTIVE_LEFT,
    MEMORY_KEPT,
    NEVER_CLOSED,
    OPEN_AT_EXIT,
    REPLACED,
    SESSION_PER_CALL,
    USED_AFTER_CLOSE,
    Code,
)
from sojourn.audit.facts import Facts, Growth, SessionRecord, Use
from sojourn.audit.finding import Finding
from sojourn.values import Place, format_bytes

# A line that opens this many sessions is a loop. Sessions with one graph each may be a comparison
# of a few models, so the limit for them is higher.
MANY_SESSIONS_ON_A_GRAPH = 5
MANY_SESSIONS = 10
# A line that adds ops between this many steps is a loop; a few late ops are harmless.
MANY_GROWTHS = 5
# In bytes; less than this is allocator noise.
MUCH_MEMORY = 32 * 2**20

T = TypeVar("T")
K = TypeVar("K")


def judge(facts: Facts) -> list[Finding]:
    """Every finding in `facts`, by file and line."""
    findings = [
        *_unclosed(facts),
        *_used_after_close(facts),
        *_session_per_call(facts),
        *_growing_graphs(facts),
        *_borrowed_defaults(facts),
        *_memory_kept(facts),
    ]
    return sorted(findings, key=lambda f: (f.place.file, f.place.line, f.code))


def _unclosed(facts: Facts) -> Iterator[Finding]:
    open_sessions = [s for s in facts.sessions if s.closed_at is None and not s.kept_by_library]
    for (code, _), group in _grouped(
        open_sessions, lambda s: (_code_of_unclosed(s, facts.exit_at), s.place)
    ):
        yield _finding(code, group, _unclosed_message(code, group, facts))


def _code_of_unclosed(session: SessionRecord, exit_at: float | None) -> Code:
    if session.replaced_by is not None:
        return REPLACED
    if session.interactive:
        return INTERACTIVE_LEFT
    if session.lost_at is not None and (exit_at is None or session.lost_at < exit_at):
        return NEVER_CLOSED
    return OPEN_AT_EXIT


def _unclosed_message(code: Code, group: list[SessionRecord], facts: Facts) -> str:
    first = group[0]
    many = f"{len(group)} {first.kind}s" if len(group) > 1 else first.kind
    via = f", made by {first.library}," if first.library else ""
    if code is REPLACED:
        other = next((s for s in facts.sessions if s.serial == first.replaced_by), None)
        where = f" by the one from line {other.place.line}" if other else ""
        return f"{many}{via} replaced{where} without closing"
    if code is INTERACTIVE_LEFT:
        return f"{many}{via} left installed as the default session"
    if code is NEVER_CLOSED:
        return f"{many}{via} never closed, and now out of reach"
    return f"{many}{via} still open at the end of the {'block' if facts.goes_on else 'program'}"


def _used_after_close(facts: Facts) -> Iterator[Finding]:
    def message(session: SessionRecord) -> str:
        where = f"{session.closed_place}" if session.closed_place else "another thread"
        return f"{session.kind} of {session.place} used after it was closed by {where}"

    uses = [(use, session) for session in facts.sessions for use in session.late_uses]
    yield from _by_line(USED_AFTER_CLOSE, uses, message)


def _session_per_call(facts: Facts) -> Iterator[Finding]:
    # Separate tests are not iterations: one helper may serve a whole suite.
    mine = [s for s in facts.sessions if not s.kept_by_library]
    for _, group in _grouped(mine, lambda s: (s.place, s.scope)):
        on_one_graph = max(len(g) for _, g in _grouped(group, lambda s: s.graph))
        if on_one_graph >= MANY_SESSIONS_ON_A_GRAPH or len(group) >= MANY_SESSIONS:
            runs = sum(s.runs for s in group)
            message = f"{len(group)} sessions from this line, for {runs} runs altogether"
            yield _finding(SESSION_PER_CALL, group, message)


def _growing_graphs(facts: Facts) -> Iterator[Finding]:
    found: dict[Place, Finding] = {}
    # Tests that share the default graph each add ops to it once; that is no loop either.
    for (graph, scope), growths in _grouped(facts.growths, lambda g: (g.graph, g.scope)):
        guilty = _guilty_lines(growths)
        if not guilty:
            continue
        place = guilty[0][0]
        # Many graphs to which the same lines add ops are one finding.
        count = len(growths) + (found[place].count if place in found else 0)
        found[place] = Finding(
            code=GRAPH_GROWS.code,
            place=place,
            message=(
                f"graph grew from {growths[0].ops_before} to {growths[-1].ops_after} ops "
                f"between {len(growths)} of its {growths[-1].step} steps"
            ),
            count=count,
            sessions=_serials(s for s in facts.sessions if s.graph == graph),
            at=next(g.at for g in growths if any(p == place for p, _ in g.lines)),
            scope=scope,
            lines=tuple(guilty),
        )
    yield from found.values()


def _guilty_lines(growths: list[Growth]) -> list[tuple[Place, int]]:
    """The lines that added ops repeatedly, the most frequent first."""
    times: dict[Place, int] = {}
    ops: dict[Place, int] = {}
    for growth in growths:
        for place, count in growth.lines:
            times[place] = times.get(place, 0) + 1
            ops[place] = ops.get(place, 0) + count
    often = [place for place, n in times.items() if n >= MANY_GROWTHS]
    often.sort(key=lambda place: (-times[place], -ops[place], place.file, place.line))
    return [(place, ops[place]) for place in often]


def _borrowed_defaults(facts: Facts) -> Iterator[Finding]:
    uses = [(use, session) for session in facts.sessions for use in session.borrowed]
    yield from _by_line(
        BORROWED_DEFAULT, uses, lambda s: f"runs on the default session that {s.place} installed"
    )


def _by_line(
    code: Code, uses: list[tuple[Use, SessionRecord]], message: Callable[[SessionRecord], str]
) -> Iterator[Finding]:
    """One finding for each line with such uses."""
    for place, group in _grouped(uses, lambda pair: pair[0].place):
        use, session = group[0]
        yield Finding(
            code=code.code,
            place=place,
            message=message(session),
            stack=use.stack,
            count=len(group),
            sessions=_serials(session for _, session in group),
            at=use.at,
            scope=session.scope,
        )


def _memory_kept(facts: Facts) -> Iterator[Finding]:
    kept = [s for s in facts.sessions if kept_bytes(s, facts) >= MUCH_MEMORY]
    for _, group in _grouped(kept, lambda s: s.place):
        held = sum(s.grown_bytes for s in group)
        stayed = sum(kept_bytes(s, facts) for s in group)
        message = f"closed, but {format_bytes(stayed)} of {format_bytes(held)} did not come back"
        yield _finding(MEMORY_KEPT, group, message, stayed)


def kept_bytes(session: SessionRecord, facts: Facts) -> int:
    """The bytes that a closed session did not return; 0 if the program did nothing afterwards."""
    closed_at = session.closed_at
    if closed_at is None:
        return 0
    went_on = facts.goes_on or any(
        s.opened_at > closed_at or (s.last_run_at or 0.0) > closed_at for s in facts.sessions
    )
    if not went_on:
        return 0
    lowest = min(session.bytes_after_close, facts.bytes_at_end or session.bytes_after_close)
    returned = max(0, session.bytes_before_close - lowest)
    return max(0, session.grown_bytes - returned)


def _finding(code: Code, group: list[SessionRecord], message: str, size: int = -1) -> Finding:
    first = group[0]
    return Finding(
        code=code.code,
        place=first.place,
        message=message,
        stack=first.stack,
        bytes=size if size >= 0 else max(0, sum(s.grown_bytes for s in group)),
        count=len(group),
        sessions=_serials(group),
        at=first.opened_at,
        scope=first.scope,
    )


def _serials(sessions: Iterable[SessionRecord]) -> tuple[int, ...]:
    return tuple(sorted({s.serial for s in sessions}))


def _grouped(items: Iterable[T], key: Callable[[T], K]) -> list[tuple[K, list[T]]]:
    """Group items by key, in the order in which each key first appears."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.items())
