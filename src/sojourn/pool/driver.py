"""What users and hands want from a pool: leases, waiting, evicting, closing, news of copies."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from typing import Any

from sojourn.errors import ModelError, PoolTimeout, SessionClosed
from sojourn.pool.books import Books, clock, nobody
from sojourn.pool.decisions.effects import Expire, Grant, Refuse, Warmed
from sojourn.pool.decisions.status import PoolStatus
from sojourn.pool.decisions.terms import CopyId, Holder, Model, Policy, Request
from sojourn.pool.hands import Hands, Source
from sojourn.pool.leasing import PoolLease, PoolTerms, Resident, Waiter
from sojourn.pool.parking import Parking
from sojourn.process.deadlines import deadline_after, left_until
from sojourn.session.stay import Stay
from sojourn.values import Place

_serials = itertools.count(1)


class Driver(Books):
    """One pool at work. The handle (`Pool`) refers to it, and so do its threads and leases."""

    def __init__(self, policy: Policy, made_at: Place, parking: Parking) -> None:
        super().__init__(policy, made_at)
        self.serial = next(_serials)  # two pools may be made by the same line
        self.parking = parking
        self.hands = Hands(self, parking)
        self.start_keeper: Callable[[], None] = nobody
        self._maker = os.getpid()
        self._cut_off_at: float | None = None  # when steps no longer get the time to finish
        self._is_hurried = False  # nobody waits for leases any longer

    # -- asking -------------------------------------------------------------------------------

    def register(self, model: Model, source: Source) -> None:
        with self.lock:
            self._require_open()
            self._scheduler.register(model)
            self.hands.sources[model.name] = source

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
        self.start_keeper()  # where that fails, nothing has been asked for yet
        with self.lock:
            self._tickets = ticket = self._tickets + 1
            request = Request(ticket, model, holder, clock(), warm_slot)
            resident, waiter = self._request(request, ring)
        self._afterwards()
        if waiter is None:
            assert resident is not None
            return PoolLease(PoolTerms(self, ticket, resident, holder, owner, request.at), holder)
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
        return PoolLease(PoolTerms(self, ticket, resident, holder, owner, clock()), holder)

    def look(self, waiter: Waiter, deadline: float | None, owner: Any) -> PoolLease | bool:
        """The same. But False only for as long as he has time: then he is refused, unless he has
        been offered something at the last moment."""
        got = self.take(waiter, owner)
        if got is False and deadline is not None and clock() >= deadline:
            self.tell(lambda s, now: s.on_timeout(waiter.request.ticket, now))
            got = self.take(waiter, owner)
            if got is False:
                model = waiter.request.model
                raise PoolTimeout(f"{model}: the copy that was offered died, and time was up")
        return got

    def leave_if_waiting(self, waiter: Waiter) -> None:
        """Whoever has not got anything by now waits no longer."""
        ticket = waiter.request.ticket
        with self.lock:
            if self._waiters.pop(ticket, None) is None:
                return
            self._route(self._scheduler.on_cancel(ticket, clock()))
        self._afterwards()

    def wait(self, waiter: Waiter, deadline: float | None, owner: Any) -> PoolLease | bool:
        """Wait on this thread."""
        try:
            while True:
                got = self.look(waiter, deadline, owner)
                if got is not False:
                    return got
                waiter.wait(None if deadline is None else left_until(deadline))
        finally:
            self.leave_if_waiting(waiter)

    def lease(self, model: str, holder: Holder, timeout: float | None, owner: Any) -> PoolLease:
        """Ask, and wait on this thread if need be."""
        deadline = deadline_after(timeout)
        got: PoolLease | Waiter | bool = self.ask(model, holder, owner)
        if isinstance(got, Waiter):
            got = self.wait(got, deadline, owner)
        assert isinstance(got, PoolLease)
        return got

    # -- will ---------------------------------------------------------------------------------

    def evict(self, model: str, timeout: float | None) -> bool:
        """Let a model go; whether nothing of it is left that was idle."""
        self._require_ours()
        with self.lock:
            self._require_open()
            if model not in self._scheduler:
                raise ModelError(f"no model named {model!r} is registered")
            self._route(self._scheduler.on_evict(model, clock()))
            going = self._scheduler.leaving(model)
        self._afterwards()

        def is_going(copy: CopyId) -> bool:
            # One that could not be parked stays: there is nothing to wait for.
            return self._is_there(copy) and not self._scheduler.has_stayed(copy)

        with self._changed:
            self._changed.wait_for(lambda: not any(map(is_going, going)), timeout)
            return not any(map(self._is_there, going))

    def close(self, timeout: float | None, place: Place, closer: int | None = None) -> None:
        """End everything. May be called twice, and by several at the same time.

        `closer` is the thread that waits for it, if it is another one.
        """
        if self.is_foreign:
            return
        mine = closer or threading.get_ident()
        deadline = None if timeout is None else clock() + timeout
        with self.lock:
            self.closed_at = self.closed_at or place
            self._cut_off_at = deadline
            self._route(self._scheduler.on_shutdown(place, clock()))
            opening = [stay for copy in self._unwanted if (stay := self._opening.get(copy))]
            # The one who closes cannot give anything back while he waits here.
            self._news.extend(Expire(*held) for held in self._scheduler.held_by(mine))
        for stay in opening:
            _cut_off(stay)  # nobody wants it any more: there is no point in loading on
        self._afterwards()
        try:
            with self._changed:
                self._changed.wait_for(
                    lambda: not self._books.is_leased or self._is_hurried, timeout
                )
        finally:
            with self.lock:
                self._cut_off_at = clock() if self._scheduler.is_leased else self._cut_off_at
                self._route(self._scheduler.on_shutdown_timeout(clock()))
            self._afterwards()
            with self._changed:
                self._changed.wait_for(lambda: self._books.is_empty)
            self.wake_keeper()
            self.parking.leave()

    def hurry(self) -> None:
        """Whoever closes it does not wait for leases any longer."""
        with self._changed:
            self._is_hurried = True
            self._changed.notify_all()

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
                self._route(self._scheduler.on_opened(copy, held_bytes, seconds, clock()))
        self._afterwards()
        self.wake_keeper()  # there is one more to watch
        return is_wanted

    def has_not_opened(self, copy: CopyId, error: Exception) -> None:
        with self.lock:
            del self._opening[copy]
            self._unwanted.discard(copy)
            self._route(self._scheduler.on_open_failed(copy, error, clock()))
            self._changed.notify_all()
        self._afterwards()

    def has_closed(self, copy: CopyId, held_bytes: int | None, residue_bytes: int) -> None:
        with self.lock:
            del self.residents[copy]
            scheduler = self._scheduler
            self._route(
                scheduler.on_closed(
                    copy, clock(), residue_bytes=residue_bytes, held_bytes=held_bytes
                )
            )
            self._changed.notify_all()
        self._afterwards()

    def seconds_to_finish(self) -> float | None:
        """How long a step may go on whose session is being closed."""
        return None if self._cut_off_at is None else max(0.0, self._cut_off_at - clock())


def _cut_off(stay: Stay) -> None:
    if stay.backend is not None:
        stay.backend.kill()
