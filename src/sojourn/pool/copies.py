"""The copies that a pool has open or is opening, and the jobs that follow from its decisions.

Slow work is not done here: it becomes a job, which the keeper starts and `hands.py` does.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from sojourn import events
from sojourn.pool.deciding import Deciding
from sojourn.pool.decisions.effects import (
    Close,
    Discard,
    Effect,
    Effects,
    EndSpare,
    Expire,
    Grant,
    MakeSpare,
    Open,
    Park,
    Refuse,
    Report,
    SetTimer,
    Warmed,
)
from sojourn.pool.decisions.scheduler import Scheduler
from sojourn.pool.decisions.terms import CopyId, Policy
from sojourn.pool.leasing import Answer, PoolTerms, Resident
from sojourn.session.totals import Steps
from sojourn.values import Place

if TYPE_CHECKING:
    from sojourn.pool.hands import Hands
    from sojourn.process.worker import Worker

Job = Callable[[], None]
KEEPER = "sojourn-pool"  # the name of its thread


class Copies(Deciding):
    """The copies of one pool. Names with a leading underscore are changed only under the lock."""

    hands: Hands

    def __init__(self, policy: Policy, made_at: Place) -> None:
        super().__init__(policy)
        self.made_at = made_at
        self.closed_at: Place | None = None
        self.residents: dict[CopyId, Resident] = {}
        self.spares: dict[int, Worker] = {}  # ready spare workers, by number
        self.jobs: deque[Job] = deque()
        self.timer_at: float | None = None
        self._opening: dict[CopyId, Callable[[], None] | None] = {}  # cancels the opening
        self._unwanted: set[CopyId] = set()  # to be closed as soon as they are open
        self._news: deque[Report] = deque()
        self._ended_steps: dict[str, Steps] = {}  # of closed copies, by model

    # -- effects ------------------------------------------------------------------------------

    def tell(self, event: Callable[[Scheduler, float], Effects]) -> None:
        """Pass an event to the scheduler, with the current time."""
        self.decide(lambda scheduler, now: self._route(event(scheduler, now)))

    def _route(self, effects: Iterable[Effect]) -> None:
        """Deliver answers and queue jobs and reports, in order. Never blocks."""
        for effect in effects:
            match effect:
                case Grant() | Warmed() | Refuse():
                    self._answer(effect)
                case SetTimer(at):
                    self.timer_at = at
                    self.wake_keeper()
                case Report():
                    self._news.append(effect)
                case Expire():
                    self._later(partial(self.end_lease, effect))
                case Open(copy):
                    self._opening[copy] = None
                    self._later(partial(self.hands.open, effect))
                case MakeSpare(number):
                    self._later(partial(self.hands.make_spare, number))
                case EndSpare(number):
                    self._later(partial(self.hands.end_spare, number))
                case Close(copy) if copy in self._opening:
                    self._unwanted.add(copy)  # the job that opens it closes it
                    call_off = self._opening[copy]
                    if call_off is not None:  # loading the model further is useless
                        self._later(call_off)
                case Close(copy):
                    self._later(partial(self.hands.close, copy))
                case Park(copy):
                    self._later(partial(self.hands.park, copy))
                case Discard(state):
                    self._later(partial(self.hands.discard, state))

    def _later(self, job: Job) -> None:
        self.jobs.append(job)
        self.wake_keeper()

    def tell_news(self) -> None:
        """Emit the queued events, without the lock and not on the keeper: a subscriber may be
        slow, or wait for the main thread, which may wait for the keeper."""
        if not self._news:
            return
        if threading.current_thread().name == KEEPER:
            self._later(self.tell_news)
            return
        while self._news:
            try:
                news = self._news.popleft()
            except IndexError:
                break  # another thread was faster
            events.emit(news.kind, news.model, self.made_at, **news.detail)

    def end_lease(self, expired: Expire) -> None:
        """End a lease that was not given back before the pool's closing timeout."""
        resident = self.residents.get(expired.copy)
        for terms in list(resident.stay.leases) if resident is not None else ():
            if isinstance(terms, PoolTerms) and terms.ticket == expired.ticket:
                terms.end(f"the pool was closed at {self.closed_at}")

    # -- events of copies ---------------------------------------------------------------------

    def is_being_opened(self, copy: CopyId, call_off: Callable[[], None]) -> None:
        """Register `call_off`, which cancels the opening; call it if the copy is unwanted."""
        with self.lock:
            self._opening[copy] = call_off
            is_unwanted = copy in self._unwanted
        if is_unwanted:
            call_off()

    def has_opened(self, resident: Resident, held_bytes: int, seconds: float) -> bool:
        """Record an opened copy; return whether it is still wanted."""
        copy = resident.copy

        def decide(scheduler: Scheduler, now: float) -> bool:
            del self._opening[copy]
            self.residents[copy] = resident
            is_wanted = copy not in self._unwanted
            self._unwanted.discard(copy)
            if is_wanted:
                self._route(scheduler.on_opened(copy, held_bytes, seconds, now))
            return is_wanted

        is_wanted = self.decide(decide)
        self.wake_keeper()  # it has one more worker to watch
        return is_wanted

    def has_not_opened(self, copy: CopyId, error: Exception) -> None:
        def decide(scheduler: Scheduler, now: float) -> None:
            del self._opening[copy]
            self._unwanted.discard(copy)
            self._route(scheduler.on_open_failed(copy, error, now))

        self.decide(decide)

    def has_closed(self, copy: CopyId, residue_bytes: int) -> None:
        def decide(scheduler: Scheduler, now: float) -> None:
            ended = self.residents.pop(copy).stay.lifecycle
            self._ended_steps.setdefault(copy.model, Steps()).add(ended)
            self._route(scheduler.on_closed(copy, now, residue_bytes=residue_bytes))

        self.decide(decide)

    def has_spare(self, number: int, worker: Worker, held_bytes: int) -> None:
        """Record a spare worker that is ready."""

        def decide(scheduler: Scheduler, now: float) -> None:
            self.spares[number] = worker
            self._route(scheduler.on_spare_ready(number, held_bytes, now))

        self.decide(decide)
        self.wake_keeper()  # it has one more worker to watch

    def is_there(self, copy: CopyId) -> bool:
        return copy in self.residents or copy in self._opening

    @abstractmethod
    def _answer(self, answer: Answer) -> None:
        """Deliver the answer to the waiter of a request."""
