"""Turns recorded events into the lives of sessions. Pure, except for reading the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec

from sojourn.probes.status_page import BUCKETS, quantile
from sojourn.values import format_bytes, format_seconds

Sample = tuple[float, int]
_Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Number = _Whole | float | None  # floats of standard JSON: no infinity


class _ReceiptFacts(msgspec.Struct):
    """The fields of a receipt that the story and its page compute with."""

    held_bytes: _Number = None
    returned_bytes: _Number = None
    seconds: _Number = None
    residue: dict[str, Any] | None = None


class _EventFacts(msgspec.Struct):
    """The same fields of an event. A line that does not match is not one of our events."""

    kind: str
    wall: float
    serial: _Whole | None = None
    pid: _Whole | None = None
    runs: _Whole | None = None
    host_bytes: _Number = None
    receipt: _ReceiptFacts | None = None


_INCIDENTS = frozenset(
    {"worker.died", "worker.stuck", "session.broken", "session.forgotten", "lease.overdue"}
    | {"pool.overrun", "pool.park_failed", "pool.state_lost", "pool.close_failed"}
    | {"sandbox.incomplete"}
)
# Fields that every event has, and fields that the page shows in their own columns.
_FRAME = frozenset({"kind", "wall", "monotonic", "time", "session", "place", "serial", "run_id"})
# After these states a session may open again; after others, an opening is another session with
# the same number.
_ASLEEP = frozenset({"session.broken", "session.parked"})
_STATES = _ASLEEP | {"session.opening", "session.ready", "session.draining", "session.closed"}
_NO: tuple[Any, ...] = (None, "", 0, [], {})


def in_words(histogram: list[int]) -> str:
    """The number of runs and their median and p99 times in words."""
    runs = sum(histogram)
    p50, p99 = (format_seconds(quantile(histogram, share)) for share in (0.5, 0.99))
    return f"{runs} run{'s' * (runs != 1)}, p50 {p50}, p99 {p99}"


@dataclass(frozen=True, slots=True)
class Incident:
    """An event that should not have happened, with all its facts."""

    at: float
    kind: str
    session: str
    place: str
    facts: dict[str, Any]

    @property
    def in_words(self) -> str:
        """The facts in words: `was killed by SIGKILL, worker pid 71, held 131 MiB`."""
        return ", ".join(_labelled(name, fact) for name, fact in self.facts.items())

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "at": round(self.at, 4),
            "kind": self.kind,
            "session": self.session,
            "place": self.place,
            **self.facts,
        }


@dataclass(slots=True)
class SessionStory:
    """One session, as known from the events. Times are seconds since the first session began."""

    name: str
    pid: int
    place: str
    opened_at: float
    ready_at: float | None = None
    closed_at: float | None = None
    broke_at: list[float] = field(default_factory=list)
    held: list[Sample] = field(default_factory=list)
    runs: int = 0
    histogram: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    receipt: dict[str, Any] | None = None
    was_forgotten: bool = False
    last_state: str = ""

    @property
    def peak_bytes(self) -> int:
        """The largest memory size recorded for the session."""
        return max((size for _, size in self.held), default=0)

    @property
    def fate(self) -> str:
        """How the session ended, in a word or two."""
        if self.closed_at is None:
            return "not closed"
        if self.ready_at is None:
            return "failed to open"
        if self.was_forgotten:
            return "forgotten"
        return "broke, closed" if self.broke_at else "closed"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "name": self.name,
            "pid": self.pid,
            "place": self.place,
            "opened_at": round(self.opened_at, 4),
            "ready_at": _rounded(self.ready_at),
            "closed_at": _rounded(self.closed_at),
            "fate": self.fate,
            "broke": len(self.broke_at),
            "runs": self.runs,
            "p50_seconds": quantile(self.histogram, 0.5),
            "p99_seconds": quantile(self.histogram, 0.99),
            "peak_bytes": self.peak_bytes,
            "receipt": self.receipt,
        }


@dataclass(slots=True)
class Story:
    """The contents of a file of events."""

    began: float = 0.0  # unix time of the first session
    seconds: float = 0.0
    sessions: list[SessionStory] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)  # events by kind
    incidents: list[Incident] = field(default_factory=list)
    unreadable: int = 0  # lines that are no events

    @property
    def shown_seconds(self) -> float:
        """The time span of a drawing: a little longer, so that unclosed sessions are visible."""
        return max(self.seconds * 1.02, 1e-3)

    @property
    def held(self) -> list[Sample]:
        """The total memory of all sessions, at each time that it changed."""
        changes: list[tuple[float, int]] = []
        for session in self.sessions:
            before = 0
            for at, size in session.held:
                changes.append((at, size - before))
                before = size
        total, samples = 0, [(0.0, 0)]
        for at, change in sorted(changes):
            total += change
            if samples[-1][0] == at:
                samples[-1] = (at, total)
            else:
                samples.append((at, total))
        samples.append((self.shown_seconds, total))
        return samples

    @property
    def peak_bytes(self) -> int:
        """The largest total memory of all sessions."""
        return max(size for _, size in self.held)

    def latencies(self) -> list[tuple[str, list[int]]]:
        """The latency histogram of all sessions with the same name, the busiest name first."""
        by_name: dict[str, list[int]] = {}
        for session in self.sessions:
            if any(session.histogram):
                before = by_name.get(session.name, [0] * BUCKETS)
                sums = (a + b for a, b in zip(before, session.histogram, strict=True))
                by_name[session.name] = list(sums)
        return sorted(by_name.items(), key=lambda item: -sum(item[1]))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "began": self.began,
            "seconds": round(self.seconds, 4),
            "peak_bytes": self.peak_bytes,
            "events": dict(self.counts),
            "unreadable_lines": self.unreadable,
            "incidents": [incident.to_dict() for incident in self.incidents],
            "sessions": [session.to_dict() for session in self.sessions],
        }


def read(path: Path) -> Story:
    """The story of a file of JSON lines and of the full file before it (`<file>.1`)."""
    lines: list[str] = []
    for one in (path.with_name(path.name + ".1"), path):
        if one == path or one.exists():
            # Split at "\n" only: texts may contain other characters that end a line.
            lines += one.read_bytes().decode(errors="replace").split("\n")
    return tell(lines)


def tell(lines: Iterable[str]) -> Story:
    """The story of these lines. A crash may have truncated the last line."""
    story = Story()
    events = []
    for line in lines:
        event = _event(line)
        if event is not None:
            events.append(event)
        elif line.strip():
            story.unreadable += 1
    if not events:
        return story
    events.sort(key=lambda event: event["wall"])
    # Before the first session, the only event is the start of the zygote.
    story.began = next((e["wall"] for e in events if "serial" in e), events[0]["wall"])
    story.seconds = max(0.0, events[-1]["wall"] - story.began)
    newest: dict[tuple[str, int, int], SessionStory] = {}
    for event in events:
        story.counts[event["kind"]] += 1
        if event.get("serial") is not None:
            _take(story.sessions, newest, event, event["wall"] - story.began)
        if event["kind"] in _INCIDENTS or event.get("error"):
            story.incidents.append(_incident(event, event["wall"] - story.began))
    story.sessions.sort(key=lambda session: session.opened_at)
    return story


def _event(line: str) -> dict[str, Any] | None:
    try:
        event: dict[str, Any] = msgspec.json.decode(line)
        msgspec.convert(event, _EventFacts)
    except (ValueError, RecursionError):
        return None
    return event


def _incident(event: Mapping[str, Any], at: float) -> Incident:
    facts = {name: fact for name, fact in event.items() if name not in _FRAME and fact not in _NO}
    session, place = (str(event.get(name) or "") for name in ("session", "place"))
    return Incident(at, event["kind"], session, place, facts)


def _labelled(name: str, fact: Any) -> str:
    label = "" if name == "how" else name.removesuffix("_bytes").replace("_", " ")
    return f"{label} {_in_units(name, fact)}".strip()


def _in_units(name: str, fact: Any) -> str:
    is_number = isinstance(fact, int | float)
    if is_number and name.endswith("bytes"):
        return format_bytes(int(fact))
    if is_number and name.endswith("seconds"):
        return format_seconds(fact)
    return ", ".join(map(str, fact)) if isinstance(fact, list) else str(fact)


def _take(
    sessions: list[SessionStory],
    newest: dict[tuple[str, int, int], SessionStory],
    event: Mapping[str, Any],
    at: float,
) -> None:
    kind, run_id = event["kind"], str(event.get("run_id") or "")
    # A program that restarts in its container has the same pid, and its serials begin at 1 again.
    key = (run_id, int(event.get("pid") or 0), event["serial"])
    session = newest.get(key)
    is_another = kind == "session.opening" and not run_id  # a line of an older version
    if session is None or (is_another and session.last_state not in _ASLEEP):
        # The session's first events may be missing: the size of the file is bounded.
        place = str(event.get("place") or "")
        session = newest[key] = SessionStory(str(event.get("session")), key[1], place, at)
        sessions.append(session)
    if kind in _STATES:
        session.last_state = kind
    session.runs = max(session.runs, int(event.get("runs") or 0))
    size = int(event.get("host_bytes") or 0)
    if kind == "session.ready":
        session.ready_at = at if session.ready_at is None else session.ready_at
        if size:
            session.held.append((at, size))
    elif kind == "session.steps":
        session.histogram = [
            a + b for a, b in zip(session.histogram, _histogram(event), strict=True)
        ]
        if size:
            session.held.append((at, size))
    elif kind == "session.broken":
        session.broke_at.append(at)
        session.held.append((at, 0))
    elif kind == "session.forgotten":
        session.was_forgotten = True
    elif kind == "session.closed":
        session.closed_at = at
        session.held.append((at, 0))
    elif kind == "session.receipt" and event.get("receipt") is not None:
        session.receipt = event["receipt"]
        _add_what_was_held_at_the_end(session)


def _add_what_was_held_at_the_end(session: SessionStory) -> None:
    """Add the receipt's held bytes as a sample, measured just before the worker ended.

    The worker ended just before the session was closed.
    """
    held = (session.receipt or {}).get("held_bytes") or 0
    seconds = (session.receipt or {}).get("seconds") or 0.0
    if held and session.closed_at is not None and not session.broke_at:
        at = max(session.closed_at - seconds, session.held[0][0], session.opened_at)
        session.held = sorted([*session.held[:-1], (at, int(held))])
        session.held.append((session.closed_at, 0))


def _histogram(event: Mapping[str, Any]) -> list[int]:
    given = event.get("histogram")
    if not isinstance(given, list) or len(given) != BUCKETS:
        return [0] * BUCKETS
    return [max(0, count) if isinstance(count, int) else 0 for count in given]


def _rounded(at: float | None) -> float | None:
    return None if at is None else round(at, 4)
