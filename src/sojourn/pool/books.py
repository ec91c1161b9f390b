"""The one lock of a pool and what it guards: the scheduler, the open sessions, those who wait.

Decisions are made under the lock, on the thread that needs one: a warm lease costs no other
thread's time. What follows from a decision is written down under the lock, in its order: answers
are handed to those who wait; what takes time becomes a job for others. Where a lease needs no
decision at all, it is only noted at the copy's door (`Door`).

Nothing here may wait for the lock when a lease is given back: the garbage collector gives back
forgotten leases, perhaps on a thread that holds the lock. Returns go through an inbox, which
whoever has the lock empties.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from sojourn import events
from sojourn.errors import InternalError
from sojourn.pool.decisions.effects import (
    Close,
    Discard,
    Effect,
    Effects,
    Expire,
    Grant,
    Open,
    Park,
    Refuse,
    Report,
    SetTimer,
    Warmed,
)
from sojourn.pool.decisions.scheduler import Scheduler
from sojourn.pool.decisions.terms import CopyId, Holder, Policy, Request
from sojourn.pool.hands import Hands
from sojourn.pool.leasing import Door, PoolLease, PoolTerms, Resident, Waiter
from sojourn.session.states import State
from sojourn.session.stay import Stay
from sojourn.values import Place

Job = Callable[[], None]
clock = time.monotonic
_GONE_SECONDS = 10.0  # the longest a broken lease waits for its copy to be cleared away


class Books:
    """The state of one pool. Everything that begins with an underscore is under the lock."""

    hands: Hands

    def __init__(self, policy: Policy, made_at: Place) -> None:
        self.made_at = made_at
        self.closed_at: Place | None = None
        self.is_foreign = False  # in a fork of the process that made it
        self.lock = threading.Lock()
        self.residents: dict[CopyId, Resident] = {}
        self.jobs: deque[Job] = deque()
        self.timer_at: float | None = None
        self.wake_keeper: Callable[[], None] = nobody
        self._changed = threading.Condition(self.lock)
        self._books = Scheduler(policy)  # by `_scheduler`, unless it is only looked at
        self._doors: dict[str, Door] = {}
        self._opening: dict[CopyId, Stay | None] = {}
        self._unwanted: set[CopyId] = set()  # told to close before they were open
        self._waiters: dict[int, Waiter] = {}
        self._returned: deque[PoolTerms] = deque()
        self._news: deque[Report | Expire] = deque()
        self._tickets = 0

    # -- doors --------------------------------------------------------------------------------

    def at_door(self, model: str, holder: Holder, owner: Any) -> PoolLease | None:
        """A lease without a decision, where there is nothing to decide: the copy is open, and
        anybody may have it. None: ask."""
        now = clock()
        with self.lock:
            door = self._doors.get(model) or self._open_door(model)
            if door is None or not door.resident.seems_alive(now):
                return None
            self._tickets = ticket = self._tickets + 1
            door.inside[ticket] = holder, now
        if self._returned or self._news:
            self._afterwards()
        return PoolLease(PoolTerms(self, ticket, door.resident, holder, owner, now, door), holder)

    def _open_door(self, model: str) -> Door | None:
        copy = None if self.is_foreign else self._books.door(model)
        if copy is None:
            return None
        door = self._doors[model] = Door(self.residents[copy])
        return door

    # -- leases -------------------------------------------------------------------------------

    def give_back(self, terms: PoolTerms) -> None:
        """A lease has ended. Waits for nothing; see the module's head."""
        if self.is_foreign:
            return
        lock = self.lock
        if lock.acquire(False):
            try:
                self._take_back(terms)
            finally:
                lock.release()
        else:
            self._returned.append(terms)
        if self._returned or self._news:
            self._afterwards()

    def _take_back(self, terms: PoolTerms) -> None:
        now = clock()
        stay, resident = terms.stay, terms.resident
        is_broken = stay.lifecycle.state is State.BROKEN
        door = terms.door
        if now > resident.measure_at:
            self.wake_keeper()
        if door is not None and not is_broken and door.inside.pop(terms.ticket, None) is not None:
            door.left += 1
            door.runs += terms.steps
            door.last_used = now
            return
        if is_broken and not resident.is_dying:
            resident.is_dying = True
            self._later(partial(self.hands.bury, resident))
        runs = 0 if is_broken else terms.steps
        effects = self._entered().on_returned(terms.ticket, now, runs=runs, changed=stay.changed)
        self._route(effects)
        if self.closed_at is not None:
            self._changed.notify_all()

    def has_moved(self, ticket: int) -> None:
        """A lease is used by another thread than before."""
        thread = threading.current_thread()
        with self.lock:
            holder = self._scheduler.holder(ticket)
            if holder is not None:
                moved = Holder(thread.ident, holder.place, thread.name)
                self._scheduler.on_moved(ticket, moved)
        self._afterwards()

    def wait_until_gone(self, copy: CopyId) -> None:
        """Wait until the receipt of a broken copy is in."""
        with self._changed:
            self._changed.wait_for(lambda: copy not in self.residents, _GONE_SECONDS)

    # -- deciding -----------------------------------------------------------------------------

    @property
    def _scheduler(self) -> Scheduler:
        """The books, under the lock, with everything entered that has happened until now: who has
        given back must not be thought to hold anything, or he would wait for himself."""
        while self._returned:
            self._take_back(self._returned.popleft())
        return self._entered()

    def _entered(self) -> Scheduler:
        """The books, with everything that was noted at the doors."""
        for model, door in self._doors.items():
            inside = [Request(t, model, who, at) for t, (who, at) in door.inside.items()]
            door.inside.clear()
            resident = door.resident
            self._books.enter(
                resident.copy,
                inside,
                door.left,
                runs=door.runs,
                changed=resident.stay.changed,
                last_used=door.last_used,
            )
        self._doors.clear()
        return self._books

    def tell(self, event: Callable[[Scheduler, float], Effects]) -> None:
        """Something has happened at this moment."""
        with self.lock:
            self._route(event(self._scheduler, clock()))
            self._changed.notify_all()
        self._afterwards()

    def _route(self, effects: Iterable[Effect]) -> None:
        """Under the lock: write down what is to be done, in order, and do nothing that waits."""
        for effect in effects:
            match effect:
                case Grant() | Warmed() | Refuse():
                    waiter = self._waiters.get(effect.ticket)
                    if waiter is None:
                        raise InternalError(f"{effect} is for nobody")
                    waiter.answer = effect
                    waiter.ring()
                case SetTimer(at):
                    self.timer_at = at
                    self.wake_keeper()
                case Report() | Expire():
                    self._news.append(effect)
                case Open(copy):
                    self._opening[copy] = None
                    self._later(partial(self.hands.open, effect))
                case Close(copy) if copy in self._opening:
                    self._unwanted.add(copy)  # whoever opens it closes it
                case Close(copy):
                    self._later(partial(self.hands.close, copy))
                case Park(copy):
                    self._later(partial(self.hands.park, copy))
                case Discard(state):
                    self._later(partial(self.hands.discard, state))

    def _later(self, job: Job) -> None:
        self.jobs.append(job)
        self.wake_keeper()

    def _afterwards(self) -> None:
        """Without the lock: take in what was given back, and tell the news."""
        while self._returned and self.lock.acquire(blocking=False):
            try:
                while self._returned:
                    self._take_back(self._returned.popleft())
            finally:
                self.lock.release()
        while self._news:
            try:
                news = self._news.popleft()
            except IndexError:
                break  # another thread was faster
            if isinstance(news, Expire):
                self._end_lease(news)
            else:
                events.emit(news.kind, news.model, self.made_at, **news.detail)

    def _end_lease(self, expired: Expire) -> None:
        resident = self.residents.get(expired.copy)
        for terms in list(resident.stay.leases) if resident is not None else ():
            if isinstance(terms, PoolTerms) and terms.ticket == expired.ticket:
                terms.end(f"the pool was closed at {self.closed_at}")


def nobody() -> None:
    """There is no keeper yet."""
