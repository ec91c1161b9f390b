"""The single writer of a session's state: every change goes through here, under one lock.

It also keeps the session's status page, where other processes see state, steps and latencies.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sojourn import events
from sojourn.probes.status_page import (
    HISTOGRAM,
    LAST_STEP,
    STATE,
    STEPS,
    UNDER_WAY,
    StatusPage,
    bucket,
)
from sojourn.session.states import USABLE, Input, State, next_state
from sojourn.values import Place

_TELL_STEPS_EVERY = 1.0  # seconds
STATE_NAMES = tuple(state.value for state in State)
_NUMBER_OF_STATE = {state: number for number, state in enumerate(State)}


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
        self.page = StatusPage({"name": name, "owner": str(owner)})
        self._words = self.page.words
        self._told_steps_at = time.monotonic()
        self._told_histogram = self.page.histogram()
        self._tell(owner)

    def begin_step(self) -> float:
        """Take part, from the time returned; raises the refusal unless the session is usable."""
        with self._lock:
            while self._waiting_alone and self.state in USABLE:
                self._changed.wait()
            state = self.state
            if state not in USABLE:
                raise self._refusal(state)
            self.under_way = self._words[UNDER_WAY] = self.under_way + 1
            if state is State.READY:
                self._to(Input.STEP_STARTED, None)
        return time.monotonic()

    def end_step(self, counts: bool = True, started: float = 0.0) -> None:
        """The step is over, however it ended. What only prepares others does not count as one."""
        now = time.monotonic()
        with self._lock:
            words = self._words
            self.steps = words[STEPS] = self.steps + counts
            self.under_way = words[UNDER_WAY] = self.under_way - 1
            words[LAST_STEP] = int(now * 1e9)
            if started:
                words[HISTOGRAM + bucket(now - started)] += 1
            if self.under_way == 0:
                self._to(Input.LAST_STEP_ENDED, None)
                self._changed.notify_all()
            if now - self._told_steps_at > _TELL_STEPS_EVERY and events.is_listening():
                self._tell_steps(now)

    def begin_alone(self) -> float:
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
            self.under_way = self._words[UNDER_WAY] = self.under_way + 1
            self._to(Input.STEP_STARTED, None)
        return time.monotonic()

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
        if after is before:
            return
        self._tell(place, is_step=before in USABLE and after in USABLE)
        if after is State.CLOSED:
            if events.is_listening():
                self._tell_steps(time.monotonic())
            self.page.close()  # off the list that other processes see
            self._words = self.page.words

    def _tell(self, place: Place | None, is_step: bool = False) -> None:
        self._words[STATE] = _NUMBER_OF_STATE[self.state]
        if events.hears_steps() if is_step else events.is_listening():
            kind = f"session.{self.state}"
            events.emit(kind, self._name, place, is_step=is_step, steps=self.steps)

    def _tell_steps(self, now: float) -> None:
        histogram = self.page.histogram()
        new = [a - b for a, b in zip(histogram, self._told_histogram, strict=True)]
        if any(new):
            events.emit(
                "session.steps",
                self._name,
                steps=self.steps,
                seconds=now - self._told_steps_at,
                histogram=new,
            )
        self._told_steps_at, self._told_histogram = now, histogram
