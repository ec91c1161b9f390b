"""The pool's books: its waiters and leases. They alone own the state; `copies.py` has the copies.

Decisions (`deciding.py`), which no signal can interrupt halfway, make all changes, except those
that are a single assignment or append: noting a lease at a door (`at_door`), ending a lease
(`PoolTerms.end`), adding a model (`Catalogue.add`).

Giving back a lease never waits for the lock: the garbage collector gives back forgotten leases,
perhaps on a thread that holds the lock. Returned leases stay in the inbox until the next decision,
which begins by emptying it.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from functools import partial
from threading import get_ident
from typing import Any

from sojourn.errors import InternalError
from sojourn.pool.copies import Copies
from sojourn.pool.deciding import clock
from sojourn.pool.decisions.effects import Grant, Refuse
from sojourn.pool.decisions.scheduler import Scheduler
from sojourn.pool.decisions.terms import CopyId, Holder, Policy, Request
from sojourn.pool.leasing import (
    Answer,
    Door,
    PoolLease,
    PoolTerms,
    Resident,
    Tie,
    Waiter,
    here,
    tie_lease,
    tie_waiter,
)
from sojourn.session.states import State
from sojourn.values import Place

_GONE_SECONDS = 10.0  # the longest that closing a broken lease waits for its copy's cleanup
_INBOX_LIMIT = 512  # most returned leases that wait for some other decision; more trigger their own


class Books(Copies):
    """The state of one pool. Names with a leading underscore are changed only under the lock."""

    def __init__(self, policy: Policy, made_at: Place) -> None:
        super().__init__(policy, made_at)
        self.is_foreign = False  # True in a fork of the process that made the pool
        self.inbox: deque[PoolTerms | Tie] = deque()  # leases and waiters that have ended
        self._tickets = itertools.count(1)
        self._doors: dict[object, Door] = {}  # by name, and by name and version
        self._ties: dict[int, Tie] = {}  # the leases that are in the books
        self._waiters: dict[int, Tie] = {}

    # -- coming in ----------------------------------------------------------------------------

    def at_door(
        self, name: str, version: int | None, holder: Holder, owner: Any
    ) -> PoolLease | None:
        """Take a lease without a decision, where none is needed: the copy is open and either
        shared or free. Returns None if the caller has to `request` the lease."""
        key = name if version is None else (name, version)
        door = self._doors.get(key)
        if door is None:
            door = self._open_door(key, name, version)
            if door is None:
                return None
        now = clock()
        terms = PoolTerms(self, next(self._tickets), door.resident, holder, now, door)
        lease = PoolLease(terms, holder, owner)
        tie = tie_lease(lease, holder, self.inbox)
        with self.lock:
            is_open = (
                self._doors.get(key) is door
                and not (door.is_exclusive and door.inside)
                and door.resident.seems_alive(now)
            )
            if is_open:
                door.inside[terms.ticket] = tie
        if not is_open:
            terms.ended, terms.handle = "it was never taken", None
            return None
        terms.hand_out()
        return lease

    def _open_door(self, key: object, name: str, version: int | None) -> Door | None:
        with self.lock:
            door = self._doors.get(key)  # another thread may have been faster
            copy = None if self.is_foreign else self._scheduler.door(name, version)
            if door is None and copy is not None:
                model = self._scheduler.find(name, version)
                is_exclusive = model is not None and model.exclusive
                resident = self.residents[copy]
                # The copy may have a door under the other key: one copy has one door.
                same = (one for one in self._doors.values() if one.resident is resident)
                door = self._doors[key] = next(same, None) or Door(resident, is_exclusive)
            return door

    def request(self, request: Request, waiter: Waiter, owner: Any) -> PoolLease | None:
        """Return a lease if one is available now; otherwise queue the waiter and return None."""

        def decide(scheduler: Scheduler, now: float) -> PoolLease | None:
            copy = scheduler.take_warm(request) if request.warm_slot is None else None
            resident = None if copy is None else self.residents[copy]
            lease = None
            if resident is not None and resident.is_alive():
                scheduler.on_accepted(request.ticket)
                lease = self._lease(request, resident, owner, now)
            else:
                self._waiters[request.ticket] = tie_waiter(waiter, self.inbox)
                # If the copy has died, the keeper notices it too and withdraws the offer.
                if resident is None:
                    self._route(scheduler.on_request(request))
            self._route(scheduler.take_effects())
            return lease

        lease = self.decide(decide)
        if lease is not None:
            lease._terms.hand_out()
        return lease

    def take(self, waiter: Waiter, owner: Any) -> PoolLease | bool:
        """Return the waiter's answer: a lease, True for a preload that is done, False if there is
        no answer yet. Raises the error of a refusal."""
        if waiter.answer is None:
            return False
        ticket = waiter.request.ticket

        def decide(scheduler: Scheduler, now: float) -> tuple[Exception | None, PoolLease | bool]:
            answer, waiter.answer = waiter.answer, None
            got: PoolLease | bool = answer is not None
            if isinstance(answer, Grant):
                # The copy may have died since the offer. Then the waiter keeps its old place.
                resident = self.residents.get(answer.copy)
                if resident is None or not resident.is_alive():
                    return None, False
                if not scheduler.on_accepted(ticket):
                    return None, False
                got = self._lease(waiter.request, resident, owner, now)
            if got:
                del self._waiters[ticket]
            return answer.error if isinstance(answer, Refuse) else None, got

        error, got = self.decide(decide)
        if error is not None:
            raise error
        if isinstance(got, PoolLease):
            got._terms.hand_out()
        return got

    def _lease(self, request: Request, resident: Resident, owner: Any, now: float) -> PoolLease:
        holder, ticket = request.holder, request.ticket
        lease = PoolLease(PoolTerms(self, ticket, resident, holder, now), holder, owner)
        self._ties[ticket] = tie_lease(lease, holder, self.inbox)
        return lease

    def cancel(self, waiter: Waiter) -> None:
        """Remove a waiter from the queue, if it still waits."""
        ticket = waiter.request.ticket

        def decide(scheduler: Scheduler, now: float) -> None:
            if self._waiters.pop(ticket, None) is not None:
                self._route(scheduler.on_cancel(ticket, now))

        if ticket in self._waiters:
            self.decide(decide)

    def note_use(self, resident: Resident) -> None:
        """Note that a copy was leased or given back, and wake the keeper, which may be in a long
        sleep, so that it measures the copy once there was time for a step. Only the first lease
        after each measurement wakes it."""
        resident.measure_at = clock() + resident.measure_seconds
        resident.is_used = True
        self.wake_keeper()

    # -- coming back --------------------------------------------------------------------------

    def settle(self, terms: PoolTerms) -> None:
        """Process a lease in the inbox, if a request may wait for it. Never blocks: see the
        module's docstring."""
        if self.is_foreign:
            return
        resident, door = terms.resident, terms.door
        if not resident.is_used:
            self.note_use(resident)
        is_broken = terms.stay.lifecycle.state is State.BROKEN
        if door is not None and not is_broken:
            terms.has_left = True  # unless it was moved to the books meanwhile
            was_noted = door.inside.pop(terms.ticket, None) is not None
            if was_noted and len(self.inbox) < _INBOX_LIMIT:
                return  # no decision was made since, so no request waits for it
        if get_ident() == self._main_thread:
            self.wake_keeper()
        else:
            self.empty_inbox()

    def empty_inbox(self) -> None:
        """Process the inbox, unless the thread that has the lock does so. Not for the main
        thread: interrupted at the wrong moment, it would keep the lock forever."""
        while self.inbox and self.lock.acquire(blocking=False):
            try:
                self._empty_inbox()
                self.ring()
            finally:
                self.lock.release()
        self.tell_news()

    def _enter_everything(self) -> bool:
        """Bring the books up to date: a holder that has given back a lease must not count as its
        holder any more, or it would wait for itself."""
        is_news = bool(self.inbox)
        self._empty_inbox()
        self._shut_doors()
        return is_news

    def _empty_inbox(self) -> None:
        while self.inbox:
            item = self.inbox.popleft()
            if isinstance(item, PoolTerms):
                self._take_back(item)
            elif item.terms is not None:
                if item.terms.ended is None:  # not even its finalizer could record it
                    item.terms.ended = "its handle was garbage-collected"
                self._take_back(item.terms)
            elif self._waiters.pop(item.ticket, None) is not None:
                self._route(self._scheduler.on_cancel(item.ticket, clock()))

    def _take_back(self, terms: PoolTerms) -> None:
        now = clock()
        stay, resident, door, ticket = terms.stay, terms.resident, terms.door, terms.ticket
        stay.leases.discard(terms)
        is_broken = stay.lifecycle.state is State.BROKEN
        if is_broken and not resident.is_dying:
            resident.is_dying = True
            self._later(partial(self.hands.bury, resident))
        if is_broken:
            self._shut_doors()
        elif ticket not in self._ties:
            was_noted = door is not None and door.inside.pop(ticket, None) is not None
            if was_noted or terms.has_left:
                self._count_visit(terms, now)
            return  # else it was taken back before
        self._shut_doors()
        if self._ties.pop(ticket, None) is None:
            return
        terms.has_left = False
        runs = 0 if is_broken else terms.runs
        self._route(self._scheduler.on_returned(ticket, now, runs=runs, changed=stay.changed))

    def _count_visit(self, terms: PoolTerms, now: float) -> None:
        """Count a lease that was taken and given back at the door, without a decision."""
        terms.has_left = False
        door = terms.door
        assert door is not None
        door.left += 1
        door.runs += terms.runs
        door.last_used = now
        if door.is_shut and terms.resident.copy in self.residents:
            self._enter(door, [])

    def _shut_doors(self) -> None:
        """Shut all doors and enter the leases that were noted at them into the books."""
        doors, self._doors = self._doors, {}
        for door in doors.values():
            door.is_shut = True
            # A lease that ends at this moment is in the books already, or not in `inside` any more.
            inside = list(door.inside.items())
            self._ties.update(inside)
            door.inside = {}
            model = door.resident.copy.model
            self._enter(
                door,
                [
                    Request(ticket, model, tie.holder, tie.terms.since)
                    for ticket, tie in inside
                    if tie.terms is not None
                ],
            )

    def _enter(self, door: Door, inside: list[Request]) -> None:
        resident = door.resident
        self._scheduler.enter(
            resident.copy,
            inside,
            door.left,
            runs=door.runs,
            changed=resident.stay.changed,
            last_used=door.last_used,
        )
        door.left = door.runs = 0

    def has_moved(self, ticket: int) -> None:
        """Record that another thread than before, this one, uses the lease."""
        key, name = here.key, threading.current_thread().name

        def decide(scheduler: Scheduler, now: float) -> None:
            holder = scheduler.holder(ticket)
            if holder is not None:
                scheduler.on_moved(ticket, Holder(key, holder.place, name))

        self.decide(decide)

    def wait_until_gone(self, copy: CopyId) -> None:
        """Wait until the receipt of a broken copy has arrived."""
        self.wait_until(lambda _: copy not in self.residents, _GONE_SECONDS)

    def _answer(self, answer: Answer) -> None:
        tie = self._waiters.get(answer.ticket)
        if tie is None:
            raise InternalError(f"{answer} is for nobody")
        waiter = tie()
        if isinstance(waiter, Waiter):  # else it was garbage-collected, and its tie is in the inbox
            waiter.answer = answer
            waiter.ring()

    def become_foreign(self) -> None:
        """Reset the books in a fork, where the owner of the lock may not exist."""
        self.is_foreign = True
        self.has_keeper = False
        self.lock = threading.Lock()
        self._doors = {}
        self._waiters.clear()
        self.residents.clear()
        self.spares.clear()
        self.errands.clear()
