"""The lock under which decisions are made, so that no signal can interrupt them halfway.

A signal (Ctrl-C) raises on the main thread, between any two calls. So the main thread makes no
decision: the keeper makes it, as an errand, and the main thread waits for the result. An interrupt
during that wait is harmless. All other threads make their decisions themselves.
"""

from __future__ import annotations

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import Any, Generic, TypeVar

from sojourn.pool.decisions.scheduler import Scheduler
from sojourn.pool.decisions.terms import Policy
from sojourn.process.deadlines import deadline_after, left_until

T = TypeVar("T")
Decision = Callable[[Scheduler, float], T]
clock = time.monotonic
# The longest that a thread or task waits between two checks: an interrupt may have prevented the
# bell that should have woken it.
LOOK_SECONDS = 1.0


class Errand(Generic[T]):
    """A decision of the main thread, made by the keeper."""

    __slots__ = ("_bell", "_decision", "_error", "_is_look", "_result")

    def __init__(self, decision: Decision[T], is_look: bool) -> None:
        self._decision: Decision[T] | None = decision
        self._is_look = is_look
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._result: T | None = None

    def run(self, books: Deciding) -> None:
        decision, self._decision = self._decision, None
        assert decision is not None
        try:
            self._result = books.decide(decision, self._is_look)
        except BaseException as error:
            self._error = error
        self._bell.put(None)

    def wait(self) -> T:
        self._bell.get()
        error, self._error = self._error, None  # its traceback refers to this frame
        if error is not None:
            raise error
        return self._result  # type: ignore[return-value]


class Deciding(ABC):
    """The lock of a pool and the decisions made under it."""

    def __init__(self, policy: Policy) -> None:
        self.lock = threading.Lock()
        self.errands: deque[Errand[Any]] = deque()
        self.has_keeper = False  # whether a keeper thread runs, which does the errands
        self.wake_keeper: Callable[[], None] = no_keeper
        self._main_thread = threading.main_thread().ident
        self._scheduler = Scheduler(policy)
        self._bells: set[queue.SimpleQueue[None]] = set()  # of the threads in `wait_until`

    def decide(self, decision: Decision[T], is_look: bool = False) -> T:
        """Bring the books up to date and make a decision, on a thread where no signal raises.

        With `is_look` the decision only reads, so that it does not wake the threads in
        `wait_until`: two of these would wake each other forever, and a single one itself.
        """
        if get_ident() == self._main_thread and self.has_keeper:
            errand = Errand(decision, is_look)
            self.errands.append(errand)
            if self.has_keeper:
                self.wake_keeper()
            else:  # the keeper ended just now and may have missed this errand
                self.run_errands()
            return errand.wait()
        with self.lock:
            is_news = self._enter_everything()
            result = decision(self._scheduler, clock())
            if is_news or not is_look:
                self.ring()
        self.tell_news()
        return result

    def run_errands(self) -> None:
        """Make the pending decisions of the main thread."""
        while self.errands:
            try:
                self.errands.popleft().run(self)
            except IndexError:
                break

    def wait_until(self, question: Callable[[Scheduler], bool], timeout: float | None) -> bool:
        """Wait until the question is answered with True; return False after `timeout` seconds.
        Not by a condition variable, which an interrupt could break."""
        deadline = deadline_after(timeout)
        bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._bells.add(bell)
        try:
            while not self.decide(lambda scheduler, now: question(scheduler), is_look=True):
                left = left_until(deadline, most=LOOK_SECONDS)
                if left <= 0:
                    return False
                try:
                    bell.get(timeout=left)
                except queue.Empty:
                    pass
            return True
        finally:
            self._bells.discard(bell)

    def ring(self) -> None:
        """Wake the threads in `wait_until`, so that they ask again."""
        for bell in tuple(self._bells):
            if bell.empty():
                bell.put(None)

    @abstractmethod
    def _enter_everything(self) -> bool:
        """Bring the books up to date, before a decision; return whether leases have ended."""

    @abstractmethod
    def tell_news(self) -> None:
        """Emit the queued events, after a decision and without the lock."""


def no_keeper() -> None:
    """Do nothing: the keeper has not been created yet."""
