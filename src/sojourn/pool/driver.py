"""Performs what the scheduler decides: the one lock, the waiters, and the open sessions.

Decisions are made under the lock, on the thread that needs one: a warm lease costs no other
thread's time. Whatever takes time (opening, saving, closing, deleting) is written down under the
lock, in the order it was decided, and done outside it by threads that the keeper starts.
Where a lease needs no decision at all, it is only noted at the copy's door (`Door`).

Nothing here may wait for the lock when a lease is given back: the garbage collector gives back
forgotten leases, perhaps on a thread that holds the lock. Returns go through an inbox, which
whoever has the lock empties.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from sojourn import events
from sojourn.errors import InternalError, ModelError, PoolTimeout, SessionClosed
from sojourn.pool.effects import (
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
from sojourn.pool.hands import Hands, Source
from sojourn.pool.leasing import Door, PoolLease, PoolTerms, Resident, Waiter
from sojourn.pool.parking import Parking
from sojourn.pool.scheduler import Scheduler
from sojourn.pool.status import PoolStatus
from sojourn.pool.terms import CopyId, Holder, Model, Policy, Request
from sojourn.session.states import State
from sojourn.session.stay import Stay
from sojourn.values import Place

_GONE_SECONDS = 10.0  # the longest a broken lease waits for its copy to be cleared away

Job = Callable[[], None]
_clock = time.monotonic


class Driver:
    """One pool at work. The handle (`Pool`) refers to it, and so do its threads and leases."""

    def __init__(self, policy: Policy, made_at: Place, parking: Parking) -> None:
        self.made_at = made_at
        self.parking = parking
        self.hands = Hands(self, parking)
        self.jobs: deque[Job] = deque()
        self.timer_at: float | None = None
        self.residents: dict[CopyId, Resident] = {}
        self.lock = threading.Lock()
        self.wake_keeper: Callable[[], None] = _nobody
        self.start_keeper: Callable[[], None] = _nobody
        self._books = Scheduler(policy)  # by `_scheduler`, unless it is only looked at
        self._doors: dict[str, Door] = {}
        self._changed = threading.Condition(self.lock)
        self._opening: dict[CopyId, Stay | None] = {}
        self._unwanted: set[CopyId] = set()  # told to close before they were open
        self._waiters: dict[int, Waiter] = {}
        self._returned: deque[PoolTerms] = deque()
        self._news: deque[Report | Expire] = deque()
        self._tickets = 0
        self._maker = os.getpid()
        self._cut_off_at: float | None = None  # when steps no longer get the time to finish
        self.closed_at: Place | None = None
        self.is_foreign = False

    # -- asking -------------------------------------------------------------------------------

    def register(self, model: Model, source: Source) -> None:
        with self.lock:
            self._require_open()
            self._scheduler.register(model)
            self.hands.sources[model.name] = source

    def at_door(self, model: str, holder: Holder, owner: Any) -> PoolLease | None:
        """A lease without a decision, where there is nothing to decide: the copy is open, and
        anybody may have it. None: ask."""
        now = _clock()
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

    def ask(
        self,
        model: str,
        holder: Holder,
        owner: Any,
        ring: Callable[[], None] | None = None,
        warm_slot: int | None = None,
    ) -> PoolLease | Waiter:
        """A lease if one can be had at once, else somebody who waits."""
        if self.is_foreign:
            raise self._foreign()
        if warm_slot is None:
            lease = self.at_door(model, holder, owner)
            if lease is not None:
                return lease
        with self.lock:
            self._tickets = ticket = self._tickets + 1
            request = Request(ticket, model, holder, _clock(), warm_slot)
            resident, waiter = self._request(request, ring)
        self._afterwards()
        if waiter is None:
            assert resident is not None
            return PoolLease(PoolTerms(self, ticket, resident, holder, owner, request.at), holder)
        self.start_keeper()
        return waiter

    def _request(
        self, request: Request, ring: Callable[[], None] | None
    ) -> tuple[Resident | None, Waiter | None]:
        """Under the lock: a copy that he can have now, or somebody who waits."""
        scheduler = self._scheduler
        copy = scheduler.take_warm(request) if request.warm_slot is None else None
        resident = None if copy is None else self.residents[copy]
        waiter: Waiter | None = None
        if resident is not None and resident.is_alive():
            scheduler.on_accepted(request.ticket)
        else:
            waiter = self._waiters[request.ticket] = Waiter(request, ring)
            # If the copy has died, the keeper sees it too, and that withdraws the offer.
            if resident is None:
                self._route(scheduler.on_request(request))
        self._route(scheduler.take_effects())
        return resident, waiter

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

    def take(self, waiter: Waiter, owner: Any) -> PoolLease | bool:
        """What the waiter has got: a lease, True if it was no lease that he wanted, False if
        there is nothing yet. Raises what he was refused with."""
        ticket = waiter.request.ticket
        with self.lock:
            answer, waiter.answer = waiter.answer, None
            if answer is None:
                return False
            if isinstance(answer, Grant):
                # It may have died since it was offered. Then he waits on, in his old place.
                resident = self.residents.get(answer.copy)
                if resident is None or not resident.is_alive():
                    return False
                if not self._books.on_accepted(ticket):
                    return False
            del self._waiters[ticket]
        if isinstance(answer, Refuse):
            raise answer.error
        if isinstance(answer, Warmed):
            return True
        assert resident is not None
        holder = waiter.request.holder
        return PoolLease(PoolTerms(self, ticket, resident, holder, owner, _clock()), holder)

    def time_out(self, waiter: Waiter) -> None:
        """His time is up: he is refused, unless he has been offered something meanwhile."""
        self.tell(lambda s, now: s.on_timeout(waiter.request.ticket, now))

    def leave_if_waiting(self, waiter: Waiter) -> None:
        """Whoever has not got anything by now waits no longer."""
        ticket = waiter.request.ticket
        with self.lock:
            if self._waiters.pop(ticket, None) is None:
                return
            self._route(self._scheduler.on_cancel(ticket, _clock()))
        self._afterwards()

    def wait(self, waiter: Waiter, timeout: float | None, owner: Any) -> PoolLease | bool:
        """Wait on this thread."""
        deadline = None if timeout is None else _clock() + timeout
        try:
            while True:
                got = self.take(waiter, owner)
                if got is not False:
                    return got
                left = None if deadline is None else deadline - _clock()
                if left is not None and left <= 0:
                    self.time_out(waiter)
                    deadline = None
                    if waiter.answer is None:  # a copy that died under his hands
                        raise PoolTimeout(f"{waiter.request.model} did not become free in time")
                    continue
                waiter.wait(left)
        finally:
            self.leave_if_waiting(waiter)

    def lease(self, model: str, holder: Holder, timeout: float | None, owner: Any) -> PoolLease:
        """Ask, and wait on this thread if need be."""
        got: PoolLease | Waiter | bool = self.ask(model, holder, owner)
        if isinstance(got, Waiter):
            got = self.wait(got, timeout, owner)
        assert isinstance(got, PoolLease)
        return got

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

    # -- will ---------------------------------------------------------------------------------

    def evict(self, model: str, timeout: float | None) -> bool:
        """Let a model go; whether nothing of it is left that was idle."""
        self._require_ours()
        with self.lock:
            self._require_open()
            if model not in self._scheduler:
                raise ModelError(f"no model named {model!r} is registered")
            self._route(self._scheduler.on_evict(model, _clock()))
            going = self._scheduler.leaving(model)
        self._afterwards()
        with self._changed:
            return self._changed.wait_for(
                lambda: not any(self._is_there(copy) for copy in going), timeout
            )

    def close(self, timeout: float | None, place: Place) -> None:
        """End everything. May be called twice, and by several at the same time."""
        if self.is_foreign:
            return
        mine = threading.get_ident()
        deadline = None if timeout is None else _clock() + timeout
        with self.lock:
            self.closed_at = self.closed_at or place
            self._cut_off_at = deadline
            self._route(self._scheduler.on_shutdown(place, _clock()))
            opening = [stay for copy in self._unwanted if (stay := self._opening.get(copy))]
            # The one who closes cannot give anything back while he waits here.
            self._news.extend(Expire(*held) for held in self._scheduler.held_by(mine))
        for stay in opening:
            _cut_off(stay)  # nobody wants it any more: there is no point in loading on
        self._afterwards()
        try:
            with self._changed:
                self._changed.wait_for(lambda: not self._books.is_leased, timeout)
        finally:  # also on Ctrl-C: then at once
            with self.lock:
                self._cut_off_at = _clock() if self._scheduler.is_leased else self._cut_off_at
                self._route(self._scheduler.on_shutdown_timeout(_clock()))
            self._afterwards()
            with self._changed:
                self._changed.wait_for(lambda: self._books.is_empty)
            self.wake_keeper()
            self.parking.leave()

    # -- questions ----------------------------------------------------------------------------

    def models(self) -> tuple[str, ...]:
        return self._books.models

    def copies(self, model: str) -> int:
        """How many copies it may have; one for a model that is not known, to be told so."""
        return self._books.model(model).copies if model in self._books else 1

    def status(self) -> PoolStatus:
        with self.lock:
            return self._scheduler.status()

    @property
    def is_over(self) -> bool:
        """Whether it is closed and everything has ended."""
        return self.closed_at is not None and self._books.is_empty

    def _is_there(self, copy: CopyId) -> bool:
        return copy in self.residents or copy in self._opening

    def _require_open(self) -> None:
        if self.closed_at is not None:
            raise SessionClosed(f"the pool was closed at {self.closed_at}")

    def _require_ours(self) -> None:
        if self.is_foreign:
            raise self._foreign()

    def _foreign(self) -> SessionClosed:
        return SessionClosed(
            f"the pool made at {self.made_at} belongs to process {self._maker}, and this is a fork "
            f"of it (process {os.getpid()}); make the pool after the fork, in each process its own"
        )

    def become_foreign(self) -> None:
        """We are in a fork. The lock may belong to a thread that does not exist here."""
        self.is_foreign = True
        self._doors.clear()
        self.lock = threading.Lock()
        self._changed = threading.Condition(self.lock)
        self.residents.clear()
        self._waiters.clear()
        self.parking.become_foreign()

    # -- deciding -----------------------------------------------------------------------------

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

    def _take_back(self, terms: PoolTerms) -> None:
        now = _clock()
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

    def _end_lease(self, expired: Expire) -> None:
        resident = self.residents.get(expired.copy)
        for terms in list(resident.stay.leases) if resident is not None else ():
            if isinstance(terms, PoolTerms) and terms.ticket == expired.ticket:
                terms.end(f"the pool was closed at {self.closed_at}")

    # -- what others have done ----------------------------------------------------------------

    def is_being_opened(self, copy: CopyId, stay: Stay) -> None:
        """There is a worker now, which can be ended if nobody wants it any more."""
        with self.lock:
            self._opening[copy] = stay
            is_in_vain = copy in self._unwanted and self.closed_at is not None
        if is_in_vain:
            _cut_off(stay)

    def has_opened(self, resident: Resident, held_bytes: int, seconds: float) -> bool:
        """A copy is open; whether anybody still wants it."""
        copy = resident.copy
        with self.lock:
            del self._opening[copy]
            self.residents[copy] = resident
            is_wanted = copy not in self._unwanted
            self._unwanted.discard(copy)
            if is_wanted:
                self._route(self._scheduler.on_opened(copy, held_bytes, seconds, _clock()))
        self._afterwards()
        self.wake_keeper()  # there is one more to watch
        return is_wanted

    def has_not_opened(self, copy: CopyId, error: Exception) -> None:
        with self.lock:
            del self._opening[copy]
            self._unwanted.discard(copy)
            self._route(self._scheduler.on_open_failed(copy, error, _clock()))
            self._changed.notify_all()
        self._afterwards()

    def has_closed(self, copy: CopyId, held_bytes: int | None, residue_bytes: int) -> None:
        with self.lock:
            del self.residents[copy]
            scheduler = self._scheduler
            self._route(
                scheduler.on_closed(
                    copy, _clock(), residue_bytes=residue_bytes, held_bytes=held_bytes
                )
            )
            self._changed.notify_all()
        self._afterwards()

    def tell(self, event: Callable[[Scheduler, float], Effects]) -> None:
        """Something has happened at this moment."""
        with self.lock:
            self._route(event(self._scheduler, _clock()))
        self._afterwards()

    def seconds_to_finish(self) -> float | None:
        """How long a step may go on whose session is being closed."""
        return None if self._cut_off_at is None else max(0.0, self._cut_off_at - _clock())


def _cut_off(stay: Stay) -> None:
    if stay.backend is not None:
        stay.backend.kill()


def _nobody() -> None:
    """There is no keeper yet."""
