"""A watch over all transitions of all sessions: each must be legal, and reported once."""

from __future__ import annotations

import itertools
import threading
from types import TracebackType

from sojourn import events
from sojourn.session.states import TRANSITIONS, State

_KINDS = {f"session.{state}": state for state in State}
_LEGAL = {(before, after) for (before, _), after in TRANSITIONS.items() if before is not after}


class Watch:
    """Records all reported transitions within a `with` block."""

    def __init__(self) -> None:
        self._lives: dict[object, list[State]] = {}
        self._names: dict[object, str] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Watch:
        self._stop = events.subscribe(self.hear, every_step=True, wants_bytes=False)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop()

    def wrong(self) -> list[str]:
        """Return the violations, a sentence each. Empty if there are none."""
        with self._lock:
            lives = {key: list(states) for key, states in self._lives.items()}
        found = []
        for key, states in lives.items():
            name = self._names[key]
            for before, after in itertools.pairwise(states):
                if (before, after) not in _LEGAL:
                    found.append(f"session {name!r} was reported to go from {before} to {after}")
            if states[0] is State.OPENING and states[-1] is not State.CLOSED:
                found.append(f"session {name!r} was opened, and is {states[-1]} at the end")
        return found

    def hear(self, event: events.Event) -> None:
        """Record an event, if it reports a transition."""
        state = _KINDS.get(event.kind)
        if state is None:
            return
        key = event.detail.get("serial", event.session)
        with self._lock:
            self._lives.setdefault(key, []).append(state)
            self._names[key] = event.session
