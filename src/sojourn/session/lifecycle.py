"""The single writer of a session's state: every change goes through here, under one lock."""

from __future__ import annotations

import threading
from collections.abc import Callable

from sojourn import events
from sojourn.session.states import USABLE, Input, State, next_state
from sojourn.values import Place


class Lifecycle:
    """Where a session stands and how many steps are under way."""

    def __init__(self, name: str, owner: Place, refusal: Callable[[State], Exception]) -> None:
        self.state = State.OPENING
        self.steps = 0
        self.under_way = 0
        self._waiting_alone = 0  # who wants to be, or is, alone with it
        self._name = name
        self._refusal = refusal  # the error for a step in this state
        self._changed = threading.Condition(threading.Lock())
        self._lock = self._changed
        self._tell(owner)

    def begin_step(self) -> None:
        """Take part; raises the refusal unless the session is usable."""
        with self._lock:
            while self._waiting_alone and self.state in USABLE:
                self._changed.wait()
            state = self.state
            if state not in USABLE:
                raise self._refusal(state)
            self.under_way += 1
            if state is State.READY:
                self._to(Input.STEP_STARTED, None)

    def end_step(self, counts: bool = True) -> None:
        """The step is over, however it ended. What only prepares others does not count as one."""
        with self._lock:
            self.steps += counts
            self.under_way -= 1
            if self.under_way == 0:
                self._to(Input.LAST_STEP_ENDED, None)
                self._changed.notify_all()

    def begin_alone(self) -> None:
        """Take part once nobody else does; those who come later wait until `end_alone`."""
        with self._lock:
            self._waiting_alone += 1
            try:
                self._changed.wait_for(lambda: not self.under_way or self.state not in USABLE)
                if self.state not in USABLE:
                    raise self._refusal(self.state)
            except BaseException:
                self._waiting_alone -= 1
                self._changed.notify_all()
                raise
            self.under_way += 1
            self._to(Input.STEP_STARTED, None)

    def end_alone(self) -> None:
        """Others may take part again."""
        with self._lock:
            self._waiting_alone -= 1
        self.end_step()

    def happened(self, what: Input, place: Place | None = None) -> State:
        """Record that something happened; returns the state before."""
        with self._lock:
            before = self.state
            self._to(what, place)
            self._changed.notify_all()
            return before

    def happened_in(self, states: frozenset[State], what: Input, place: Place | None) -> State:
        """The same, but only if it stands in one of these states. Returns the state before."""
        with self._lock:
            before = self.state
            if before in states:
                self._to(what, place)
                self._changed.notify_all()
            return before

    def wait_idle(self, timeout: float | None) -> bool:
        """Wait until no step is under way."""
        with self._lock:
            return self._changed.wait_for(lambda: self.under_way == 0, timeout)

    def wait_for(self, states: frozenset[State], timeout: float | None = None) -> bool:
        """Wait until it stands in one of these states."""
        with self._lock:
            return self._changed.wait_for(lambda: self.state in states, timeout)

    def become_foreign(self) -> None:
        """We are in a fork of the process whose session this is: nothing can be done with it.

        The lock may have been held by a thread that does not exist here.
        """
        self._lock = self._changed = threading.Condition(threading.Lock())
        self.state = State.CLOSED
        self.under_way = 0

    def _to(self, what: Input, place: Place | None) -> None:
        before = self.state
        self.state = after = next_state(before, what)
        if after is not before:
            self._tell(place)

    def _tell(self, place: Place | None) -> None:
        if events.is_listening():
            events.emit(f"session.{self.state}", self._name, place, steps=self.steps)
