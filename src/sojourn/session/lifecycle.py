"""The single writer of a session's state: every change is made here, under one lock.

It also updates the session's status page, where other processes read state, steps and latencies.
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

_TELL_STEPS_EVERY = 1.0  # seconds between two `session.steps` events
_LOOK_SECONDS = 0.5  # how long to wait for a thread before checking whether it is still in its step
# The share of time spent on measuring: the kernel walks all pages of the worker while a caller
# waits.
_SHARE_FOR_MEASURING = 1 / 500
STATE_NAMES = tuple(state.value for state in State)
_serials = itertools.count(1)
_NUMBER_OF_STATE = {state: number for number, state in enumerate(State)}
_READY, _RUNNING = State.READY, State.RUNNING
_ANY = frozenset(State)
_NUMBER_OF_READY, _NUMBER_OF_RUNNING = _NUMBER_OF_STATE[_READY], _NUMBER_OF_STATE[_RUNNING]


class Lifecycle:
    """The state of a session and the steps that are under way."""

    def __init__(
        self,
        name: str,
        model: str,
        owner: Place,
        refusal: Callable[[State], Exception],
        measure: Callable[[], Footprint],
    ) -> None:
        self.state = State.OPENING
        self.serial = next(_serials)  # unique together with the pid; names may be reused
        self.steps = 0
        self.under_way = 0
        self.how_it_died: str | None = None  # how the worker died, once it has
        self.failure = ""  # why the session never became ready
        self.engine = ""  # the engine that computes, and why it was chosen
        # The steps under way, and those that have exclusive use or wait for it. A thread never
        # waits for its own steps: a step may run a callback that closes the session, and a Ctrl-C
        # at the wrong moment may lose the end of a step.
        self._inside: list[Step] = []
        self._alone: list[Step] = []
        self._closers: set[int] = set()  # threads that are closing: they end no steps meanwhile
        self._name = name
        self.model = model  # the name under which its steps are counted
        self._refusal = refusal  # makes the error for a step in a given state
        self.footprint = measure  # measures the memory that the session holds now
        # Reentrant, because a subscriber may close the session whose event it receives.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting = 0  # threads that wait for a change
        self.identity = {
            "name": name,
            "owner": str(owner),
            "client_pid": os.getpid(),
            "serial": self.serial,
        }
        self.page = StatusPage(self.identity)
        self._words = self.page.words
        self._nanoseconds = 0  # duration of all steps together
        self._reported_steps_at = time.monotonic()
        self._reported_histogram = self.page.histogram()
        self._measure_after = 0.0

    def announce(self, owner: Place) -> None:
        """Report that the session is being opened; the caller must have its end reported too."""
        totals.enter(self)
        self._tell(owner)

    def begin_step(self, step: Step) -> bool:
        """Register the step as under way; raises the refusal unless the session is usable.

        While another step has exclusive use, wait, and raise TimeoutError at the deadline. An
        awaited step never blocks here, because the exclusive step may wait for steps that only
        this event loop can finish: it gets False instead and asks again.
        """
        with self._lock:
            if self._alone and not self._wait_for_exclusive(step):
                return False
            state = self.state
            if state is _READY and not events.hears_steps():  # `_enter` inlined, for speed
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
        """Unregister the step, however it ended. `counts`: whether it counts as a run."""
        now = time.monotonic()
        started = step.started if step.counts else 0.0  # reported even if it is no run
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
                inside.clear()  # the branch below inlined, for speed
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
                    self._reported_steps_at = now  # check again in a while, not at every step
        # Events are sent outside the lock: subscribers may be slow, and other steps want to begin.
        if started and is_heard:
            seconds = now - started
            self._emit("session.step", is_step=True, seconds=seconds, failed=failed)
        if news:
            self._emit("session.steps", host_bytes=self._measured_now_and_then(now), **news)

    def begin_alone(self, step: Step) -> None:
        """Begin with exclusive use once no other step runs; later steps wait for `end_alone`."""
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
        """End exclusive use: other steps may begin again."""
        with self._lock:
            if step in self._alone:  # else a signal handler has run a step of this thread meanwhile
                self._alone.remove(step)
            self._changed.notify_all()
        self.end_step(step, counts=False)

    def happened(self, what: Input, place: Place | None = None) -> State:
        """Apply the input to the state; returns the state before."""
        return self.happened_in(_ANY, what, place)

    def happened_in(
        self,
        states: frozenset[State],
        what: Input,
        place: Place | None,
        first: Callable[[], None] | None = None,
    ) -> State:
        """Like `happened`, but only if the session is in one of these states; `first` is called
        before the event is sent. Returns the state before."""
        with self._lock:
            before = self.state
            if before in states:
                if first is not None:
                    first()
                self._to(what, place)
                self._changed.notify_all()
            return before

    def wait_idle(self, timeout: float | None) -> bool:
        """Wait until no step is under way except those of the calling thread."""
        me = threading.get_ident()
        with self._lock:
            return self._wait(lambda: all(step.thread == me for step in self._inside), timeout)

    def wait_to_close(self, timeout: float | None, closer: int) -> bool:
        """Like `wait_idle`, for a thread that closes the session. Steps of other closing threads
        are ignored: for example, steps that their event loops await cannot end before the close."""
        with self._lock:
            self._closers.add(closer)
            self._changed.notify_all()
            return self._wait(
                lambda: all(step.thread in self._closers for step in self._inside), timeout
            )

    def has_steps_beside(self, task: weakref.ref[Any]) -> bool:
        """Whether other steps are under way. Steps of the asking task are discarded: if one is
        still registered, a Ctrl-C has kept it from being unregistered."""
        with self._lock:
            self._inside[:] = [step for step in self._inside if step.task != task]
            self._forget_the_lost()
            return bool(self._inside)

    def runs(self) -> int:
        """The number of runs, including steps whose event loop is blocked until the close."""
        with self._lock:
            return self.steps + sum(step.is_run for step in self._inside)

    def leave_behind(self) -> None:
        """Unregister all steps: their worker is being replaced, and the next one has none yet."""
        with self._lock:
            for step in self._inside:
                step.is_left_behind = True
            self._inside.clear()
            self.under_way = self._words[UNDER_WAY] = 0

    def wait_for(self, states: frozenset[State], timeout: float | None = None) -> bool:
        """Wait until the session is in one of these states."""
        with self._lock:
            return self._wait(lambda: self.state in states, timeout)

    def is_telling_here(self) -> bool:
        """Whether this thread is in a subscriber to a change of state: it then holds the lock, and
        other threads wait for it."""
        return self._lock._is_owned()  # type: ignore[attr-defined, no-any-return]

    def become_foreign(self) -> None:
        """Mark the session as unusable, in a fork of the process that owns it.

        The lock is replaced, since a thread that does not exist in the fork may have held it.
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
            if now is not _READY and now is not _RUNNING:  # a subscriber has closed the session
                self._leave(step)
                raise self._refusal(self.state)

    def _leave(self, step: Step) -> bool:
        """Unregister the step; False if it is not registered (left behind, or in a fork)."""
        try:
            self._inside.remove(step)
        except ValueError:
            return False
        self.under_way = self._words[UNDER_WAY] = len(self._inside)
        return True

    def _keep_out(self, step: Step) -> bool:
        """Whether other steps keep this one from exclusive use. Awaited steps do not if the thread
        of their event loop waits for exclusive use as well: they cannot go on before it does."""
        blocked = {other.thread for other in self._alone}
        return any(
            other.thread not in blocked if other.is_awaited else other.thread != step.thread
            for other in self._inside
        )

    def _wait_for_exclusive(self, step: Step) -> bool:
        # A step of our own thread is stale: a Ctrl-C has kept it from ending its exclusive use.
        self._alone[:] = [other for other in self._alone if other.thread != step.thread]

        def is_its_turn() -> bool:
            return not self._alone or self.state not in USABLE or self._is_waited_for(step.thread)

        if step.is_awaited:
            if self._alone:
                self._forget_the_lost()  # awaited steps poll, so `_wait` never does it for them
            return not self._alone or self.state not in USABLE
        left = None if step.deadline is None else max(0.0, step.deadline - time.monotonic())
        if not self._wait(is_its_turn, left):
            raise TimeoutError
        return True

    def _is_waited_for(self, thread: int) -> bool:
        """Whether steps that want exclusive use wait for steps of this thread, most likely those of
        its event loop: then this thread must not wait for them (deadlock)."""
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
        """Drop steps that are over but still registered: a Ctrl-C may arrive while a step ends."""
        frames = sys._current_frames()
        for steps in (self._inside, self._alone):
            steps[:] = [step for step in steps if step.is_there(frames.get(step.thread))]
        # Our own frame is in the dict, a reference cycle: it would keep all frames, and the objects
        # of their callers, alive until the garbage collector runs.
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
            self.page.close()  # other processes no longer list the session
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
        """The bytes held, measured rarely enough to take a small share of time; else 0."""
        if now < self._measure_after or not events.wants_bytes():
            return 0
        held = self.footprint().host_bytes
        ended = time.monotonic()
        self._measure_after = ended + (ended - now) / _SHARE_FOR_MEASURING
        return held

    def _news_of_steps(self, now: float) -> dict[str, Any] | None:
        """The steps since the last report; None if there were no steps."""
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
