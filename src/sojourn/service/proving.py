"""Check whether the rows of requests depend on each other. Pure.

Independence is verified, never assumed: an open first dimension may also be time, and then joined
requests would silently get wrong answers. So the answers of the first joined steps are compared
with the model's answers to a request alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

PROOFS = 3  # comparisons of an input before it is trusted
_MARKS = 64  # marks remembered for each input
_LARGE = 2**14  # bytes
_LONGEST_PAUSE = 1024  # steps; comparing never stops completely
# Relative to the largest value: a joined step may add up values in another order, but never values
# of other rows.
_TOLERANCES = {"float64": 1e-6, "float32": 1e-3}
_COARSE = 2e-2  # of shorter floating-point types
_APART = 10  # in tolerances: a smaller difference between requests could be lost in their answers

Outputs = Mapping[str, np.ndarray]


class Proof:
    """The evidence collected about one target, for the target's lifetime.

    Equal requests prove nothing: with x - mean(x) over the rows they get the same answers together
    as alone. So each input must have differed between neighbours, and these neighbours are
    compared. Until then only batches of values that were compared before skip the comparison, and
    batches of a kind whose comparisons have repeatedly proved nothing: the more of these, the rarer
    the next.
    """

    def __init__(self, inputs: int) -> None:
        self._missing = dict.fromkeys(range(inputs), PROOFS)  # comparisons still missing, by input
        self._alike: dict[int, set[Hashable]] = {}  # marks of batches that were compared
        self._pauses: dict[tuple[int, str], _Pause] = {}  # by input and kind

    @property
    def is_complete(self) -> bool:
        return not self._missing

    def to_compare(self, requests: Sequence[list[np.ndarray]]) -> tuple[int, int] | None:
        """Return the two requests of a joined step to compare, or None. Must be called once for
        each step."""
        pauses = []
        for at in self._missing:
            mark = _mark(requests, at)
            if mark is not None and mark in self._alike.get(at, ()):
                continue
            if mark is None and (jumps := _jumps(requests, at)):
                return jumps[0], jumps[-1] + 1
            pauses.append(self._pause(requests, at, mark))
        is_due = [pause.is_over() for pause in pauses]  # a list: every pause counts this step
        return (0, len(requests) - 1) if any(is_due) else None

    def add(self, requests: Sequence[list[np.ndarray]], compared: tuple[int, int]) -> None:
        """Record that these two requests got the same answers together as alone."""
        first, last = compared
        for at in tuple(self._missing):
            mark = _mark(requests, at)
            if mark is not None and len(alike := self._alike.setdefault(at, set())) < _MARKS:
                alike.add(mark)
            if mark is None and {first, last - 1} <= set(_jumps(requests, at)):
                self._missing[at] -= 1
                if not self._missing[at]:
                    del self._missing[at]
            else:
                self._pause(requests, at, mark).begin()

    def _pause(
        self, requests: Sequence[list[np.ndarray]], at: int, mark: Hashable | None
    ) -> _Pause:
        is_even = len({len(arrays[at]) for arrays in requests}) == 1
        kind = "alike" if mark is not None else "near" if is_even else "uneven"
        return self._pauses.setdefault((at, kind), _Pause())


class _Pause:
    """Counts steps of one kind that skip the comparison, because earlier comparisons proved
    nothing."""

    def __init__(self) -> None:
        self._compared = 0
        self._left = 0

    def begin(self) -> None:
        self._compared += 1
        self._left = min(2 ** max(0, self._compared - PROOFS), _LONGEST_PAUSE) - 1

    def is_over(self) -> bool:
        self._left -= 1
        return self._left < 0


def agree(alone: Outputs, joined: Outputs) -> bool:
    """Whether the joined answer of a request equals its separate answer, except for rounding."""
    return all(
        _is_close(np.asarray(value), np.asarray(joined[name])) for name, value in alone.items()
    )


def _mark(requests: Sequence[list[np.ndarray]], at: int) -> Hashable | None:
    """Return a mark of the value that all requests have for an input, or None if they differ. Equal
    batches have equal marks; a mark does not hold the array. For one row repeated, only that row
    counts, and for an array of one value only that value."""
    first = requests[0][at]
    row = first[:1]
    is_row = len(first) == 1 or bool((first == row).all())
    is_large = first.nbytes > _LARGE
    values = b"" if is_large else _values(first)
    for arrays in requests[1:]:
        array = arrays[at]
        if array.shape != first.shape:
            is_same = is_row and bool((array == row).all())
        else:
            is_same = np.array_equal(array, first) if is_large else _values(array) == values
        if not is_same:
            return None
    value = row.ravel()[:1]
    what = first if not is_row else value if (row == value).all() else row
    return what.shape, hash(_values(what))


def _values(array: np.ndarray) -> Hashable:
    """Return the elements in the form that is fastest to compare: this runs for each request of a
    batch."""
    return tuple(array.ravel().tolist()) if array.dtype.hasobject else array.tobytes()


def _jumps(requests: Sequence[list[np.ndarray]], at: int) -> list[int]:
    """Return which requests differ from the next one by more than rounding, in the rows that all
    have."""
    rows = min(len(arrays[at]) for arrays in requests)
    values = np.stack([arrays[at][:rows].ravel() for arrays in requests])
    if values.dtype.kind not in "fcV":
        return _where(values[:-1] != values[1:])
    tolerance = _APART * _TOLERANCES.get(values.dtype.name, _COARSE)
    if values.dtype.kind == "V":
        values = values.astype(np.float32)
    one, other = values[:-1], values[1:]
    with np.errstate(invalid="ignore", over="ignore"):
        is_apart = ~(np.abs(other - one) <= tolerance * _largest(one))
    if not is_apart.any():
        return []
    return _where(is_apart & (one != other) & ~(np.isnan(one) & np.isnan(other)))


def _largest(values: np.ndarray) -> np.ndarray:
    """Return the largest finite magnitude in each request."""
    sizes = np.abs(values)
    largest: np.ndarray = sizes.max(axis=1, initial=0, keepdims=True)
    if not np.isfinite(largest).all():
        largest = np.where(np.isfinite(sizes), sizes, 0).max(axis=1, initial=0, keepdims=True)
    return largest


def _where(differs: np.ndarray) -> list[int]:
    return [int(at) for at in np.flatnonzero(differs.any(axis=1))]


def _is_close(alone: np.ndarray, joined: np.ndarray) -> bool:
    if alone.shape != joined.shape:
        return False
    if alone.dtype.kind not in "fcV":
        return np.array_equal(alone, joined)
    tolerance = _TOLERANCES.get(alone.dtype.name, _COARSE)
    wide = np.complex128 if alone.dtype.kind == "c" else np.float64
    a, b = alone.astype(wide), joined.astype(wide)
    finite = np.abs(a[np.isfinite(a)])
    largest = float(finite.max()) if finite.size else 0.0
    return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance * largest, equal_nan=True))
