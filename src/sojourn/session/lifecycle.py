"""The single writer of a session's state: every change goes through here, under one lock.

It also keeps the session's status page, where other processes see state, steps and latencies.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sojourn import events
from sojourn.probes.status_page import (
    HISTOGRAM,
    LAST_STEP,
    NANOSECONDS,
    STATE,
    STEPS,
    UNDER_WAY,
    StatusPage,
    bucket,
)
from sojourn.session import totals
from sojourn.session.states import USABLE, Input, State, next_state
from sojourn.values import Footprint, Place

if TYPE_CHECKING:
    from sojourn.session.steps import Step

_TELL_STEPS_EVERY = 1.0  # seconds
_LOOK_SECONDS = 0.5  # how long to wait for a thread before looking whether it still lives
_SHARE_FOR_MEASURING = 1 / 500  # the kernel walks all pages of the worker, and a caller waits
STATE_NAMES = tuple(state.value for state in State)
_serials = itertools.count(1)
_NUMBER_OF_STATE = {state: number for number, state in enumerate(State)}
_READY, _RUNNING = State.READY, State.RUNNING
_ANY = frozenset(State)
_NUMBER_OF_READY, _NUMBER_OF_RUNNING = _NUMBER_OF_STATE[_READY], _NUMBER_OF_STATE[_RUNNING]


class Lifecycle:
    """Where a session stands and how many steps are under way."""

    def __init__(
        self,
        name: str,
        model: str,
        owner: Place,
        refusal: Callable[[State], Exception],
        measure: Callable[[], Footprint],
    ) -> None:
        self.state = State.OPENING
        self.serial = next(_serials)  # names may be used again; with the pid this is unique
        self.steps = 0
        self.under_way = 0
        self.how_it_died: str | None = None  # of a session whose worker has
        self.failure = ""  # why it was never ready
        self.engine = ""  # what computes, and why it does
        # The steps inside, and those that are (or want to be) alone with it. A thread never waits
        # for steps of its own: a step may lead to a callback that closes the session, and a Ctrl-C
        # at the wrong moment may lose the end of a step.
        self._inside: list[Step] = []
        self._alone: list[Step] = []
        self._closers: set[int] = set()  # threads that close it, and can end no step meanwhile
        self._name = name
        self.model = model  # what its steps are counted under
        self._refusal = refusal  # the error for a step in this state
        self.footprint = measure  # what it holds now
        # Reentrant, because a subscriber may close the session whose event it hears.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting = 0  # who waits for a change
        self.identity = {
            "name": name,
            "owner": str(owner),
            "client_pid": os.getpid(),
            "serial": self.serial,
        }
        self.page = StatusPage(self.identity)
        self._words = self.page.words
        self._nanoseconds = 0  # of all steps together
        self._reported_steps_at = time.monotonic()
        self._reported_histogram = self.page.histogram()
        self._measure_after = 0.0

    def announce(self, owner: Place) -> None:
        """It is being opened; the caller makes sure that its end is reported as well."""
        totals.enter(self)
        self._tell(owner)

    def begin_step(self, step: Step) -> bool:
        """Take part from now on; raises the refusal unless the session is usable.

        If others are alone with it, wait, and raise TimeoutError at the deadline. What is awaited
        never waits here, because others may wait for what only its event loop can finish: False.
        """
        with self._lock:
            if self._alone and not self._wait_for_exclusive(step):
                return False
            state = self.state
            if state is _READY and not events.hears_steps():  # as below, without any call
                self._inside.append(step)
                self.state = _RUNNING
                words = self._words
                words[STATE] = _NUMBER_OF_RUNNING
                self.under_way = words[UNDER_WAY] = len(self._inside)
            elif state is _READY or state is _RUNNING:
                self._enter(step, state)
            else:
                raise self._refusal(state)
        step.started = time.monotonic()
        return True

    def end_step(self, step: Step, counts: bool = True, *, failed: bool = False) -> None:
        """The step is over, however it ended. What only prepares others does not count as one."""
        now = time.monotonic()
        started = step.started if step.counts else 0.0  # reported, counted or not
        news = None
        is_heard = events.hears_steps()
        inside = self._inside
        with self._lock:
            words = self._words
            words[LAST_STEP] = int(now * 1e9)
            if counts:
                self.steps = words[STEPS] = self.steps + 1
                if started:
                    nanoseconds = int((now - started) * 1e9)
                    words[HISTOGRAM + bucket(nanoseconds)] += 1
                    self._nanoseconds = words[NANOSECONDS] = self._nanoseconds + nanoseconds
            if len(inside) == 1 and inside[0] is step and not is_heard and self.state is _RUNNING:
                inside.clear()  # as below, without any call
                self.under_way = words[UNDER_WAY] = 0
                self.state = _READY
                words[STATE] = _NUMBER_OF_READY
            else:
                if self._leave(step) and self.under_way == 0:
                    self._to(Input.LAST_STEP_ENDED, None)
            if self._waiting:
                self._changed.notify_all()
            if now - self._reported_steps_at > _TELL_STEPS_EVERY:
                if events.is_listening():
                    news = self._news_of_steps(now)
                else:
                    self._reported_steps_at = now  # asked again in a while, not at every step
        # Telling may take a while, and others want to begin.
        if started and is_heard:
            seconds = now - started
            self._emit("session.step", is_step=True, seconds=seconds, failed=failed)
        if news:
            self._emit("session.steps", host_bytes=self._measured_now_and_then(now), **news)

    def begin_alone(self, step: Step) -> None:
        """Take part once no other does; those who come later wait until `end_alone`."""
        with self._lock:
            self._alone.append(step)
            try:
                self._wait(lambda: not self._keep_out(step) or self.state not in USABLE)
                if self.state not in USABLE:
                    raise self._refusal(self.state)
                self._enter(step, self.state)
            except BaseException:
                self._alone.remove(step)
                self._changed.notify_all()
                raise
        step.started = time.monotonic()

    def end_alone(self, step: Step) -> None:
        """Others may take part again."""
        with self._lock:
            if step in self._alone:  # else a signal's handler has run a step in the midst of it
                self._alone.remove(step)
            self._changed.notify_all()
        self.end_step(step, counts=False)

    def happened(self, what: Input, place: Place | None = None) -> State:
        """Record that something happened; returns the state before."""
        return self.happened_in(_ANY, what, place)

    def happened_in(
        self,
        states: frozenset[State],
        what: Input,
        place: Place | None,
        first: Callable[[], None] | None = None,
    ) -> State:
        """The same, but only if it stands in one of these states; `first` is done before the
        event is sent. Returns the state before."""
        with self._lock:
            before = self.state
            if before in states:
                if first is not None:
                    first()
                self._to(what, place)
                self._changed.notify_all()
            return before

    def wait_idle(self, timeout: float | None) -> bool:
        """Wait until no step is under way but those of the thread that waits."""
        me = threading.get_ident()
        with self._lock:
            return self._wait(lambda: all(step.thread == me for step in self._inside), timeout)

    def wait_to_close(self, timeout: float | None, closer: int) -> bool:
        """The same for a thread that closes it. What is left of other threads that do so, such as
        steps that their event loops await, waits for the close as well."""
        with self._lock:
            self._closers.add(closer)
            self._changed.notify_all()
            return self._wait(
                lambda: all(step.thread in self._closers for step in self._inside), timeout
            )

    def has_steps_beside(self, task: weakref.ref[Any]) -> bool:
        """Whether steps are under way. The task that asks is in none: a Ctrl-C has kept it from
        telling that its last one has ended."""
        with self._lock:
            self._inside[:] = [step for step in self._inside if step.task != task]
            self._forget_the_lost()
            return bool(self._inside)

    def runs(self) -> int:
        """How many steps there were, with those whose event loop cannot go on before the close."""
        with self._lock:
            return self.steps + sum(step.is_run for step in self._inside)

    def leave_behind(self) -> None:
        """The worker is being replaced: what is still under way is none of the next one's."""
        with self._lock:
            for step in self._inside:
                step.is_left_behind = True
            self._inside.clear()
            self.under_way = self._words[UNDER_WAY] = 0

    def wait_for(self, states: frozenset[State], timeout: float | None = None) -> bool:
        """Wait until it stands in one of these states."""
        with self._lock:
            return self._wait(lambda: self.state in states, timeout)

    def is_telling_here(self) -> bool:
        """Whether this thread is just hearing of a change, and others wait until it has."""
        return self._lock._is_owned()  # type: ignore[attr-defined, no-any-return]

    def become_foreign(self) -> None:
        """We are in a fork of the process whose session this is: nothing can be done with it.

        The lock may have been held by a thread that does not exist here.
        """
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self.state = State.CLOSED
        self._inside.clear()
        self._alone.clear()
        self.under_way = 0

    def _enter(self, step: Step, state: State) -> None:
        self._inside.append(step)
        self.under_way = self._words[UNDER_WAY] = len(self._inside)
        if state is _READY:
            self._to(Input.STEP_STARTED, None)
            now = self.state
            if now is not _READY and now is not _RUNNING:  # closed by one who heard of the step
                self._leave(step)
                raise self._refusal(self.state)

    def _leave(self, step: Step) -> bool:
        """False if it is not inside: it was left behind, or became foreign."""
        try:
            self._inside.remove(step)
        except ValueError:
            return False
        self.under_way = self._words[UNDER_WAY] = len(self._inside)
        return True

    def _keep_out(self, step: Step) -> bool:
        """Whether others inside keep it from being alone. What the event loop of a thread awaits
        that wants to be alone as well does not go on before that thread does."""
        blocked = {other.thread for other in self._alone}
        return any(
            other.thread not in blocked if other.is_awaited else other.thread != step.thread
            for other in self._inside
        )

    def _wait_for_exclusive(self, step: Step) -> bool:
        # A Ctrl-C kept our own thread from saying that it is alone no longer.
        self._alone[:] = [other for other in self._alone if other.thread != step.thread]

        def is_its_turn() -> bool:
            return not self._alone or self.state not in USABLE or self._is_waited_for(step.thread)

        if step.is_awaited:
            if self._alone:
                self._forget_the_lost()  # those who only ask again have no other moment for it
            return not self._alone or self.state not in USABLE
        left = None if step.deadline is None else max(0.0, step.deadline - time.monotonic())
        if not self._wait(is_its_turn, left):
            raise TimeoutError
        return True

    def _is_waited_for(self, thread: int) -> bool:
        """Whether those who want to be alone wait for steps of this thread, most likely of its
        event loop: then it cannot wait for them."""
        has_steps = any(step.thread == thread for step in self._inside)
        return has_steps and not any(step in self._inside for step in self._alone)

    def _wait(self, question: Callable[[], bool], timeout: float | None = None) -> bool:
        until = None if timeout is None else time.monotonic() + timeout
        self._waiting += 1
        try:
            while True:
                left = _LOOK_SECONDS if until is None else until - time.monotonic()
                if self._changed.wait_for(question, max(0.0, min(left, _LOOK_SECONDS))):
                    return True
                if until is not None and left <= _LOOK_SECONDS:
                    return False
                self._forget_the_lost()
        finally:
            self._waiting -= 1

    def _forget_the_lost(self) -> None:
        """A Ctrl-C may come just when a step tells that it has ended."""
        frames = sys._current_frames()
        for steps in (self._inside, self._alone):
            steps[:] = [step for step in steps if step.is_there(frames.get(step.thread))]
        # Ours is one of them: it would hold the others, and what callers have in their hands, until
        # the garbage collector comes by.
        frames.clear()
        if len(self._inside) != self.under_way:
            self.under_way = self._words[UNDER_WAY] = len(self._inside)
            if not self._inside:
                self._to(Input.LAST_STEP_ENDED, None)

    def _to(self, what: Input, place: Place | None) -> None:
        before = self.state
        self.state = after = next_state(before, what)
        if after is before:
            return
        if after is State.CLOSED and events.is_listening():
            news = self._news_of_steps(time.monotonic())
            if news:
                self._emit("session.steps", **news)
        self._tell(place, is_step=before in USABLE and after in USABLE)
        if after is State.BROKEN:
            totals.count("broken")
        if after is State.CLOSED:
            totals.leave(self)
            self.page.close()  # off the list that other processes see
            self._words = self.page.words

    def _tell(self, place: Place | None, is_step: bool = False) -> None:
        self._words[STATE] = _NUMBER_OF_STATE[self.state]
        if events.hears_steps() if is_step else events.is_listening():
            is_new = self.state is State.READY and not is_step
            held = self.footprint().host_bytes if is_new and events.wants_bytes() else 0
            kind = f"session.{self.state}"
            more = {"how": self.how_it_died} if self.state is State.BROKEN else {}
            if is_new and self.engine:
                more["engine"] = self.engine
            if self.state is State.CLOSED and self.failure:
                more["error"] = self.failure
            self._emit(kind, place, held, is_step=is_step, runs=self.steps, **more)

    def _measured_now_and_then(self, now: float) -> int:
        """What it holds, so seldom that measuring takes a small share of the time; 0 meanwhile."""
        if now < self._measure_after or not events.wants_bytes():
            return 0
        held = self.footprint().host_bytes
        ended = time.monotonic()
        self._measure_after = ended + (ended - now) / _SHARE_FOR_MEASURING
        return held

    def _news_of_steps(self, now: float) -> dict[str, Any] | None:
        """What has been done since the last report, None if nothing was."""
        histogram = self.page.histogram()
        new = [a - b for a, b in zip(histogram, self._reported_histogram, strict=True)]
        seconds = now - self._reported_steps_at
        self._reported_steps_at, self._reported_histogram = now, histogram
        return {"runs": self.steps, "seconds": seconds, "histogram": new} if any(new) else None

    def _emit(
        self,
        kind: str,
        place: Place | None = None,
        host_bytes: int = 0,
        *,
        is_step: bool = False,
        **detail: Any,
    ) -> None:
        events.emit(
            kind, self._name, place, host_bytes, is_step=is_step, serial=self.serial, **detail
        )
