"""Decide which requests are joined into one step. Pure: no loop, no clock, no arrays.

Waiting requests are joined as soon as a copy is free. There is no batching window, so a lone
request pays nothing. Only requests with the same `key` can be joined, and nothing is ever padded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, Protocol, TypeVar

_WEIGHT = 0.125  # weight of the latest step in the moving average
_TRY_AGAIN = 32  # after this many decisions against joining, join once, to measure again


class Asking(Protocol):
    """A request, as this module sees it."""

    @property
    def key(self) -> Hashable | None:
        """Requests with the same key can be joined; a request with None is never joined."""

    @property
    def rows(self) -> int: ...


A = TypeVar("A", bound=Asking)


class Costs:
    """The duration of a step by its number of rows, learned from the steps that were run.

    A step of two rows may cost as much as one of sixteen, and more than two steps of one row: then
    single rows are sent until enough requests wait.
    """

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}  # by powers of two
        self._refusals = 0

    def note(self, rows: int, seconds: float) -> None:
        """Record that a step of this many rows took this long."""
        size = rows.bit_length()
        before = self._seconds.get(size)
        self._seconds[size] = seconds if before is None else before + (seconds - before) * _WEIGHT

    def of(self, rows: int) -> float | None:
        """Return the seconds that a step of this many rows takes; None before the first."""
        return self._seconds.get(rows.bit_length())

    def for_all(self, rows: int) -> float:
        """Return the seconds for this many rows in steps of the best known size; 0 before the
        first."""
        # A size covers up to twice as many rows, so this is the most that one row took.
        return rows * min((s / 2 ** (size - 1) for size, s in self._seconds.items()), default=0.0)

    def pays(self, sizes: Sequence[int]) -> bool:
        """Whether one joined step takes no longer than a separate step for each size."""
        together = self.of(sum(sizes))
        separate = [self.of(rows) for rows in sizes]
        if together is None or None in separate:
            return True
        if together <= sum(seconds for seconds in separate if seconds is not None):
            self._refusals = 0
            return True
        self._refusals += 1
        return self._refusals % _TRY_AGAIN == 0


class Line(Generic[A]):
    """The requests that wait for one model, in order of arrival within each kind."""

    def __init__(self, max_rows: int, costs: Costs) -> None:
        self._max_rows = max_rows
        self._costs = costs
        self._kinds: dict[Hashable, deque[A]] = {}  # the kind whose turn is next comes first
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, ask: A) -> None:
        """Queue a request."""
        self._kinds.setdefault(_kind(ask), deque()).append(ask)
        self._count += 1

    def drop(self, ask: A) -> None:
        """Remove a request from the queue, if it is still there."""
        waiting = self._kinds.get(_kind(ask))
        if waiting is not None and ask in waiting:
            waiting.remove(ask)
            self._count -= 1
            if not waiting:
                del self._kinds[_kind(ask)]

    def regroup(self, rekey: Callable[[A], None]) -> None:
        """Group the waiting requests again, after `rekey` has updated each one's key."""
        waiting = [ask for kind in self._kinds.values() for ask in kind]
        self._kinds, self._count = {}, 0
        for ask in waiting:
            rekey(ask)
            self.add(ask)

    def take(self, is_wanted: Callable[[A], bool]) -> list[A]:
        """Remove and return the requests of the next step; empty if no wanted request waits.

        The kinds take turns, so that many requests of one kind do not starve the others.
        """
        while self._kinds:
            kind = next(iter(self._kinds))
            waiting = self._kinds.pop(kind)
            batch = self._joined(waiting, is_wanted)
            if waiting:
                self._kinds[kind] = waiting  # behind the others
            if batch:
                return batch
        return []

    def _joined(self, waiting: deque[A], is_wanted: Callable[[A], bool]) -> list[A]:
        batch: list[A] = []
        rows = 0
        while waiting:
            ask = waiting[0]
            if not is_wanted(ask):
                waiting.popleft()
                self._count -= 1
                continue
            if batch and rows + ask.rows > self._max_rows:
                break
            batch.append(waiting.popleft())
            rows += ask.rows
        if len(batch) > 1 and not self._costs.pays([ask.rows for ask in batch]):
            waiting.extendleft(reversed(batch[1:]))
            del batch[1:]
        self._count -= len(batch)
        return batch


def _kind(ask: Asking) -> Hashable:
    return id(ask) if ask.key is None else ask.key
