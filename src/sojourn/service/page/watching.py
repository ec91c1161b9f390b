"""Facts from events that the pool's status lacks: how workers died, what closes gave back."""

from __future__ import annotations

import re
import statistics
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from sojourn.audit.event_report import story
from sojourn.events import Event, subscribe

MOST_LINES = 4000  # events kept for the drawing, which uses them if no file of events is written
MOST_STEPS = 1000  # events kept that only report steps
MOST_SESSIONS = 1000  # entries, by session name, of each table
MOST_INCIDENTS = 50
_TYPICAL_OF = 8  # last opens or closes of a session, whose median is the estimate
_COPY = re.compile(r"(?P<model>.*?)(@(?P<version>\d+))?(\[(?P<slot>\d+)\])?", re.DOTALL)
_INCIDENTS = {"worker.died", "worker.stuck", "pool.overrun", "pool.park_failed", "pool.state_lost"}
_INCIDENTS |= {"pool.close_failed", "lease.overdue", "session.forgotten"}
_NO: tuple[Any, ...] = (None, "", 0)
_encoder = msgspec.json.Encoder(enc_hook=str)


def model_of(session: str) -> tuple[str, int]:
    """The model and version of a pool's session, from its name, such as "resnet@2[0]"."""
    match = _COPY.fullmatch(session)
    assert match is not None  # the pattern matches any text
    return match["model"], int(match["version"] or 1)


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that should not have happened."""

    at: float
    kind: str
    session: str
    words: str


class Watching:
    """Collects facts from events, from `start` to `stop`. Events arrive on any thread; the other
    methods are called on the server's thread."""

    def __init__(
        self, changed: Callable[[], None], closed: Callable[[dict[str, Any]], None]
    ) -> None:
        self._changed = changed
        self._closed = closed
        self._lock = threading.Lock()
        self._lines: deque[bytes] = deque(maxlen=MOST_LINES)
        self._step_lines: deque[bytes] = deque(maxlen=MOST_STEPS)
        self._incidents: deque[Incident] = deque(maxlen=MOST_INCIDENTS)
        self._broken: dict[str, tuple[float, str]] = {}  # by session: when, how
        self._engines: dict[str, tuple[str, str]] = {}  # by session: engine, why
        self._held: dict[str, int] = {}  # by session: bytes, as last measured
        self._began: dict[tuple[str, str], float] = {}  # unfinished opens, closes: monotonic start
        self._took: dict[tuple[str, str], deque[float]] = {}
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Subscribe to events."""
        self._unsubscribe = subscribe(self._hear)

    def stop(self) -> None:
        """Unsubscribe."""
        self._unsubscribe()

    # -- questions ----------------------------------------------------------------------------

    def lines(self) -> list[str]:
        """The last events, as lines of a file of events, but not in order."""
        with self._lock:
            return [line.decode() for line in (*self._lines, *self._step_lines)]

    def incidents(self) -> list[Incident]:
        """The incidents, newest first."""
        with self._lock:
            return list(reversed(self._incidents))

    def broken(self) -> dict[str, tuple[float, str]]:
        """Sessions whose worker died and that have not reopened: when, and how."""
        with self._lock:
            return dict(self._broken)

    def held(self) -> dict[str, int]:
        """The bytes that open sessions held when they were last measured."""
        with self._lock:
            return dict(self._held)

    def engine(self, model: str, version: int) -> tuple[str, str]:
        """The engine chosen for a model, and why; empty if there was no choice."""
        with self._lock:
            found = [e for name, e in self._engines.items() if model_of(name) == (model, version)]
        return found[-1] if found else ("", "")

    def is_over_at(self, what: str, session: str) -> float | None:
        """When an "opening" or "closing" will probably be over (monotonic), judging by earlier
        ones."""
        with self._lock:
            began = self._began.get((what, session))
            took = self._took.get((what, session)) or [
                seconds
                for (kind, _), all_seconds in self._took.items()
                if kind == what
                for seconds in all_seconds
            ]
        return began + statistics.median(took) if began is not None and took else None

    # -- events, on any thread ----------------------------------------------------------------

    def _hear(self, event: Event) -> None:
        with self._lock:
            self._take(event)
        if event.kind == "session.receipt":
            receipt = event.detail.get("receipt")
            if isinstance(receipt, dict):
                self._closed({**receipt, "at": round(event.wall, 3), "session": event.session})
        if event.kind != "session.steps":
            self._changed()

    def _take(self, event: Event) -> None:
        kind, session = event.kind, event.session
        lines = self._step_lines if kind == "session.steps" else self._lines
        lines.append(_encoder.encode(event.to_dict()))
        if kind in _INCIDENTS:
            facts = {k: v for k, v in event.detail.items() if k != "serial" and v not in _NO}
            words = story.Incident(0.0, kind, session, "", facts).in_words
            self._incidents.append(Incident(round(event.wall, 3), kind, session, words))
        if event.host_bytes and kind in ("session.ready", "session.steps"):
            self._held[session] = event.host_bytes
        elif kind in ("session.closed", "session.broken"):
            self._held.pop(session, None)
        if kind == "session.opening":
            self._begin("opening", event)
        elif kind == "session.ready":
            self._broken.pop(session, None)
            self._end("opening", event)
        elif kind in ("session.draining", "session.parking"):
            self._begin("closing", event)
        elif kind == "session.closed":
            self._began.pop(("opening", session), None)
            self._end("closing", event)
        elif kind == "session.broken":
            self._broken.setdefault(session, (round(event.wall, 3), "its worker died"))
        elif kind == "worker.died" and session:
            how = str(event.detail.get("how") or "its worker died")
            self._broken[session] = (round(event.wall, 3), how)
        elif kind in ("engine.chosen", "engine.refused"):
            why = str(event.detail.get("why", ""))
            chosen = (
                str(event.detail.get("engine", "")) if kind == "engine.chosen" else "tensorflow"
            )
            self._engines[session] = (chosen, why)

        known: tuple[dict[Any, Any], ...] = (self._held, self._broken, self._engines)
        for remembered in (*known, self._began, self._took):
            if len(remembered) > MOST_SESSIONS:
                del remembered[next(iter(remembered))]

    def _begin(self, what: str, event: Event) -> None:
        self._began.setdefault((what, event.session), event.monotonic)

    def _end(self, what: str, event: Event) -> None:
        began = self._began.pop((what, event.session), None)
        if began is not None:
            took = self._took.setdefault((what, event.session), deque(maxlen=_TYPICAL_OF))
            took.append(event.monotonic - began)
