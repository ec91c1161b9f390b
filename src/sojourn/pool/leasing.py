"""What passes between the pool and those who want a lease: a place to wait, and the handle."""

from __future__ import annotations

import queue
import select
from collections.abc import Callable
from threading import get_ident
from typing import Any, Protocol

from sojourn.pool.effects import Grant, Refuse, Warmed
from sojourn.pool.terms import CopyId, Holder, Request
from sojourn.session.lease import Lease, Terms
from sojourn.session.session import Session
from sojourn.session.states import State
from sojourn.session.stay import Stay

Answer = Grant | Warmed | Refuse


class Waiter:
    """Somebody who waits for an answer, on a thread of his own or in an event loop.

    The answer is written under the pool's lock; the bell only says that there is something to
    look at. A SimpleQueue may be rung from inside the garbage collector, which gives forgotten
    leases back, without waiting for any lock.
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

    def wait(self, seconds: float | None) -> None:
        """Wait for the bell, or for as long as this."""
        try:
            self._bell.get(timeout=seconds)
        except queue.Empty:
            pass


class Resident:
    """A copy that is open: what the driver has and the decisions do not."""

    __slots__ = (
        "_poll",
        "copy",
        "is_dying",
        "measure_seconds",
        "measured_at",
        "pidfd",
        "session",
        "stay",
    )

    def __init__(self, copy: CopyId, session: Session, now: float, measure_seconds: float) -> None:
        self.copy = copy
        self.session = session
        self.stay: Stay = session._stay
        self.pidfd: int = self.stay.backend.pidfd  # type: ignore[union-attr]
        self.measured_at = now
        self.measure_seconds = measure_seconds
        self.is_dying = False  # its worker has ended, or is about to, and somebody sees to it
        self._poll = select.poll()
        self._poll.register(self.pidfd, select.POLLIN)

    def is_alive(self) -> bool:
        """Whether its worker runs. Only under the pool's lock: one may poll at a time."""
        return not self.is_dying and not self._poll.poll(0)


class Lender(Protocol):
    """What a lease of a pool needs from it."""

    def give_back(self, ticket: int, resident: Resident, terms: Terms) -> None: ...

    def has_moved(self, ticket: int) -> None: ...

    def wait_until_gone(self, copy: CopyId) -> None: ...


class Giving:
    """Gives one lease back. Called once, by whoever ends the lease, perhaps the finalizer."""

    __slots__ = ("lender", "owner", "resident", "ticket")

    def __init__(self, lender: Lender, ticket: int, resident: Resident, owner: Any) -> None:
        self.lender = lender
        self.ticket = ticket
        self.resident = resident
        self.owner = owner  # the pool's handle: it is not forgotten while a lease is out

    def __call__(self, terms: Terms) -> None:
        self.lender.give_back(self.ticket, self.resident, terms)


class PoolLease(Lease):
    """A lease of a pool. It knows which thread uses it, so that deadlocks can be told."""

    def __init__(self, giving: Giving, holder: Holder) -> None:
        self._terms = Terms(giving.resident.stay, holder.place, giving, is_brief=True)
        self._until = self._max_seconds = None
        self._giving = giving
        # A task may use its lease from any thread (asyncio.to_thread): it is the holder all along.
        self._thread = holder.key if type(holder.key) is int else None

    @property
    def _stay(self) -> Stay:  # type: ignore[override]
        if self._thread is not None and get_ident() != self._thread:
            self._thread = get_ident()
            self._giving.lender.has_moved(self._giving.ticket)
        terms = self._terms
        if terms.ended is not None:
            raise self._expired()
        return terms.stay

    def close(self) -> None:
        """Give it back. May be called twice."""
        super().close()
        if self._terms.stay.lifecycle.state is State.BROKEN:
            # Its memory is back already; when this returns, the pool knows it too.
            self._giving.lender.wait_until_gone(self._giving.resident.copy)
