"""Which requests go into one step together. Pure: no loop, no clock, no arrays.

What waits goes together as soon as a copy is free: there is no window to wait for, so that a lone
request pays nothing. Only requests of one kind (`key`) can be joined, and nothing is ever padded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, Protocol, TypeVar

_WEIGHT = 0.125  # of the latest step in what is remembered
_TRY_AGAIN = 32  # after so many decisions against joining, one is made the other way to learn


class Asking(Protocol):
    """A request, as far as this module is concerned."""

    @property
    def key(self) -> Hashable | None:
        """Requests with the same key can be joined; None can be joined with no other."""

    @property
    def rows(self) -> int: ...


A = TypeVar("A", bound=Asking)


class Costs:
    """What a step takes by its number of rows, learned from those that were run.

    A step of two rows may cost as much as one of sixteen, and more than two of one: then single
    rows are sent until enough wait.
    """

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}  # by powers of two
        self._refusals = 0

    def note(self, rows: int, seconds: float) -> None:
        """A step of so many rows took this long."""
        size = rows.bit_length()
        before = self._seconds.get(size)
        self._seconds[size] = seconds if before is None else before + (seconds - before) * _WEIGHT

    def of(self, rows: int) -> float | None:
        """Seconds that such a step takes; None before the first."""
        return self._seconds.get(rows.bit_length())

    def for_all(self, rows: int) -> float:
        """Seconds for so many rows in steps of the size that has been best; 0 before the first."""
        # A size stands for up to twice as many rows: this is the most that one of them took.
        return rows * min((s / 2 ** (size - 1) for size, s in self._seconds.items()), default=0.0)

    def pays(self, sizes: Sequence[int]) -> bool:
        """Whether one step for all of these takes no longer than a step for each."""
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
    """The requests that wait for one model, each kind in the order in which they came."""

    def __init__(self, max_rows: int, costs: Costs) -> None:
        self._max_rows = max_rows
        self._costs = costs
        self._kinds: dict[Hashable, deque[A]] = {}  # the kind whose turn it is first
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, ask: A) -> None:
        """It waits from now on."""
        self._kinds.setdefault(_kind(ask), deque()).append(ask)
        self._count += 1

    def drop(self, ask: A) -> None:
        """It waits no longer, if it still did."""
        waiting = self._kinds.get(_kind(ask))
        if waiting is not None and ask in waiting:
            waiting.remove(ask)
            self._count -= 1
            if not waiting:
                del self._kinds[_kind(ask)]

    def regroup(self, rekey: Callable[[A], None]) -> None:
        """Some have another key from now on, which `rekey` gives them."""
        waiting = [ask for kind in self._kinds.values() for ask in kind]
        self._kinds, self._count = {}, 0
        for ask in waiting:
            rekey(ask)
            self.add(ask)

    def take(self, is_wanted: Callable[[A], bool]) -> list[A]:
        """What goes into the next step; nothing if nothing waits that is still wanted.

        The kinds take turns, so that many requests of one do not keep the others waiting.
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
