"""The objects between a pool and its callers: the waiter of a request, and the lease.

The books refer to waiters and leases by a `Tie`, a weak reference. When the handle is gone, for
whatever reason (including a Ctrl-C between any two lines), the interpreter itself, and not Python
code that could be interrupted, puts the tie into the pool's inbox.
"""

from __future__ import annotations

import itertools
import queue
import select
import threading
import weakref
from collections import deque
from collections.abc import Callable
from types import CodeType
from typing import Any, Protocol

from sojourn import events
from sojourn.errors import LeaseExpired
from sojourn.pool.decisions.effects import Grant, Refuse, Warmed
from sojourn.pool.decisions.terms import CopyId, Holder, Request
from sojourn.session.lease import Ending, Lease, Terms
from sojourn.session.session import Session
from sojourn.session.stay import Stay
from sojourn.values import Place

Answer = Grant | Warmed | Refuse
_GIVEN_BACK = "it was given back"
_keys = itertools.count(1)


class _Here(threading.local):
    """Thread-local values. The key is unique to the thread, unlike its ident, which the system
    reuses when the thread has ended, perhaps with a lease not given back."""

    def __init__(self) -> None:
        self.key = next(_keys)
        # This thread as a holder, by the id of the code and the instruction that takes the lease.
        self.holders: dict[tuple[int, int], tuple[Holder, CodeType]] = {}


here = _Here()


def this_thread(place: Place) -> Holder:
    """Return this thread as the holder of a lease that it takes at this line."""
    return Holder(here.key, place, threading.current_thread().name)


class Waiter:
    """A request that waits for its answer, on its caller's thread or in an event loop.

    The answer is written under the pool's lock; the bell only wakes the caller to check for it.
    The bell is a SimpleQueue, which the garbage collector, when it gives back forgotten leases,
    can ring without waiting for any lock.
    """

    def __init__(self, request: Request, ring: Callable[[], None] | None = None) -> None:
        self.request = request
        self.answer: Answer | None = None
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._ring = ring

    def ring(self) -> None:
        if self._ring is not None:
            self._ring()
        else:
            self._bell.put(None)

    def wait(self, seconds: float) -> None:
        """Wait for the bell, but at most so many seconds."""
        try:
            self._bell.get(timeout=seconds)
        except queue.Empty:
            pass


class Resident:
    """An open copy, as the driver sees it: its session and process, unknown to the decisions."""

    __slots__ = (
        "_poll",
        "_seen_at",
        "copy",
        "is_being_measured",
        "is_dying",
        "is_used",
        "measure_at",
        "measure_seconds",
        "pages",
        "pidfd",
        "read_at",
        "session",
        "stay",
    )

    def __init__(self, copy: CopyId, session: Session, now: float, measure_seconds: float) -> None:
        self.copy = copy
        self.session = session
        self.stay: Stay = session._stay
        self.pidfd: int = self.stay.backend.pidfd  # type: ignore[union-attr]
        self.measure_at = now + measure_seconds
        self.measure_seconds = measure_seconds
        self.is_being_measured = False
        self.is_used = False  # whether it was leased since the last check of its size
        self.pages = 0  # resident pages at the last reading
        self.read_at = 0.0  # when that was
        self.is_dying = False  # its worker has ended or is about to, and a job handles that
        self._seen_at = 0.0
        self._poll = select.poll()
        self._poll.register(self.pidfd, select.POLLIN)

    def is_alive(self) -> bool:
        """Whether its worker runs. Needs the pool's lock: only one thread may poll at a time."""
        return not self.is_dying and not self._poll.poll(0)

    def seems_alive(self, now: float) -> bool:
        """Like `is_alive`, but asks the kernel at most once per millisecond while it is alive."""
        if now - self._seen_at < 0.001:
            return not self.is_dying
        is_alive = self.is_alive()
        if is_alive:
            self._seen_at = now
        return is_alive


class Lender(Protocol):
    """The interface that a pool's lease needs from its pool."""

    inbox: deque[Any]

    def note_use(self, resident: Resident) -> None: ...

    def settle(self, terms: PoolTerms) -> None: ...

    def has_moved(self, ticket: int) -> None: ...

    def wait_until_gone(self, copy: CopyId) -> None: ...


class Door:
    """A copy that can be leased without a decision, by one holder at a time if it is exclusive.

    Its leases are noted only here, until the next decision: before that the notes are entered
    into the books and the door is shut.
    """

    __slots__ = ("inside", "is_exclusive", "is_shut", "last_used", "left", "resident", "runs")

    def __init__(self, resident: Resident, is_exclusive: bool) -> None:
        self.resident = resident
        self.is_exclusive = is_exclusive
        self.inside: dict[int, Tie] = {}  # by ticket
        self.is_shut = False
        self.left = 0  # leases that were taken and given back here
        self.runs = 0  # runs during those leases
        self.last_used = 0.0


class PoolTerms(Terms):
    """The terms of a pool's lease: its copy and its ticket.

    They are created as often as steps run, and only subscribers to every step receive their
    events. For speed, code is written out here that could be shorter by calls to the parent class.
    """

    __slots__ = ("door", "has_left", "is_out", "lender", "resident", "ticket")

    def __init__(
        self,
        lender: Lender,
        ticket: int,
        resident: Resident,
        holder: Holder,
        since: float,
        door: Door | None = None,
    ) -> None:
        self.stay = resident.stay
        self.holder = holder.place
        self.since = since
        self.max_seconds = None
        self.handle = None
        self.runs = 0
        self.ended = None
        self.error = LeaseExpired
        self._timer = None
        self.lender = lender
        self.ticket = ticket
        self.resident = resident
        self.door = door  # where the lease was noted
        self.has_left = False  # whether it ended at the door, before any decision
        self.is_out = False  # whether the handle has reached the caller

    def hand_out(self) -> None:
        """Record that the handle is being returned to the caller."""
        self.stay.leases.add(self)
        if not self.resident.is_used:
            self.lender.note_use(self.resident)
        if events.hears_steps():
            events.emit("lease.granted", self.stay.name, self.holder, is_step=True)
        self.is_out = True

    def end(self, why: str, error: Ending = LeaseExpired) -> bool:
        """End the lease, perhaps from inside the garbage collector; False if it had ended."""
        if self.ended is not None:
            return False
        self.error = error
        # No call between these lines: signals are handled only at calls, so that the lease has
        # both ended and is in the inbox, or neither.
        self.ended = why
        self.handle = None
        self.lender.inbox.append(self)
        self.stay.leases.discard(self)
        self.lender.settle(self)
        if events.hears_steps():
            facts: dict[str, Any] = {"runs": self.runs, "why": why}
            events.emit("lease.ended", self.stay.name, self.holder, is_step=True, **facts)
        return True

    def forgotten(self) -> None:
        if self.is_out:
            super().forgotten()
        else:  # interrupted before the caller had it
            self.end("its request was interrupted")


class PoolLease(Lease):
    """A lease of a pool. It tracks which thread uses it, so that deadlocks can be explained."""

    _terms: PoolTerms

    def __init__(self, terms: PoolTerms, holder: Holder, owner: Any) -> None:
        self._terms = terms
        self._owner = owner  # the pool's handle: a lease keeps the pool alive
        # A task may use its lease from any thread (asyncio.to_thread) and remains the holder.
        self._thread = holder.key if type(holder.key) is int else None

    @property
    def _stay(self) -> Stay:  # type: ignore[override]
        terms = self._terms
        if terms.ended is not None:
            raise self._expired()
        if self._thread is not None and here.key != self._thread:
            terms.lender.has_moved(terms.ticket)
            self._thread = here.key
        return terms.stay

    @property
    def is_broken(self) -> bool:
        """Whether its worker has died; the copy is perhaps being closed already."""
        return self._terms.stay.how_it_died is not None

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the session back. May be called twice."""
        terms = self._terms
        if terms.ended is None:
            terms.end(_GIVEN_BACK)
        if self.is_broken:
            # The worker's memory is free already; wait until the pool's account shows it.
            terms.lender.wait_until_gone(terms.resident.copy)


class Tie(weakref.ref["Waiter | PoolLease"]):
    """The books' weak reference to a waiter or a lease, with the data they need once it is gone."""

    __slots__ = ("holder", "terms", "ticket")

    ticket: int
    holder: Holder
    terms: PoolTerms | None


def tie_waiter(waiter: Waiter, inbox: deque[Any]) -> Tie:
    tie = Tie(waiter, inbox.append)
    tie.ticket, tie.holder, tie.terms = waiter.request.ticket, waiter.request.holder, None
    return tie


def tie_lease(lease: PoolLease, holder: Holder, inbox: deque[Any]) -> Tie:
    tie = Tie(lease, inbox.append)
    terms = tie.terms = lease._terms
    tie.ticket, tie.holder = terms.ticket, holder
    terms.watch(lease)  # Python calls the newest callback first: that one records how it ended
    return tie
