"""Waiting requests, in the order of arrival, and granted leases.

Pure bookkeeping. A waiter that is offered a copy keeps its place until it accepts: if the copy
dies before that, it waits on, ahead of all later requests; if the waiter has left meanwhile, the
offer goes to the next one and nothing is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from sojourn.errors import InternalError
from sojourn.pool.decisions.terms import CopyId, Holder, Request


class WaitQueue:
    """The waiting requests, first come, first served: in the order of their tickets."""

    def __init__(self) -> None:
        self._waiting: dict[int, Request] = {}
        self._per_model: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, ticket: int) -> bool:
        return ticket in self._waiting

    def __iter__(self) -> Iterator[Request]:
        """Iterate over a snapshot, in order, so that removing requests meanwhile is safe."""
        return iter(tuple(self._waiting.values()))

    def add(self, request: Request) -> None:
        if request.ticket in self._waiting:
            raise InternalError(f"ticket {request.ticket} waits twice")
        is_last = not self._waiting or request.ticket > next(reversed(self._waiting))
        self._waiting[request.ticket] = request
        self._per_model[request.model] += 1
        if not is_last:  # restore its old place
            self._waiting = dict(sorted(self._waiting.items()))

    def remove(self, ticket: int) -> Request | None:
        request = self._waiting.pop(ticket, None)
        if request is not None:
            self._per_model[request.model] -= 1
            if not self._per_model[request.model]:
                del self._per_model[request.model]
        return request

    def get(self, ticket: int) -> Request | None:
        return self._waiting.get(ticket)

    def has_waiters_for(self, model: str) -> bool:
        return model in self._per_model

    def count(self, model: str) -> int:
        return self._per_model.get(model, 0)


@dataclass(slots=True)
class GrantedLease:
    """A copy that was offered to a holder, or accepted by it."""

    request: Request
    copy: CopyId
    since: float
    is_accepted: bool = False

    @property
    def holder(self) -> Holder:
        return self.request.holder


class Leases:
    """All leases by ticket, and the number of leases of each thread or task."""

    def __init__(self) -> None:
        self._by_ticket: dict[int, GrantedLease] = {}
        self._per_holder: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._by_ticket)

    def __iter__(self) -> Iterator[GrantedLease]:
        return iter(tuple(self._by_ticket.values()))

    def get(self, ticket: int) -> GrantedLease | None:
        return self._by_ticket.get(ticket)

    def add(self, lease: GrantedLease) -> None:
        self._by_ticket[lease.request.ticket] = lease
        key = lease.request.holder.key
        self._per_holder[key] = self._per_holder.get(key, 0) + 1

    def remove(self, ticket: int) -> GrantedLease | None:
        lease = self._by_ticket.pop(ticket, None)
        if lease is not None:
            key = lease.request.holder.key
            self._per_holder[key] -= 1
            if not self._per_holder[key]:
                del self._per_holder[key]
        return lease

    def is_holding(self, holder: Holder) -> bool:
        """Whether this thread or task has a lease now. Such a holder must never wait only for
        fairness: others may wait for what it holds."""
        return holder.key in self._per_holder

    def move(self, ticket: int, holder: Holder) -> None:
        """Record that another thread or task uses the lease now and will give it back."""
        lease = self.remove(ticket)
        if lease is not None:
            lease.request = lease.request._replace(holder=holder)
            self.add(lease)
