"""Whether the rows of requests depend on each other. Pure.

That they do not is never believed but seen. A first dimension that is left open may as well be
time, and then joined requests would get wrong answers in silence. So the answers of the first
joined steps are compared with what the model says to a request alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

PROOFS = 3  # comparisons that an input takes part in before it is trusted
_MARKS = 64  # that are remembered of an input
_LARGE = 2**14  # bytes
_LONGEST_PAUSE = 1024  # steps: it is never given up
# Relative to the largest value: sums are taken in another order, but not of other rows.
_TOLERANCES = {"float64": 1e-6, "float32": 1e-3}
_COARSE = 2e-2  # of shorter types
_APART = 10  # tolerances between requests: less of a difference could be lost in the answers

Outputs = Mapping[str, np.ndarray]


class Proof:
    """What has been seen of one target, for as long as that lives.

    Requests that are alike prove nothing: with x - mean(x) over the rows they get the same together
    as alone. So each input must have differed between neighbours, and those are compared. Until
    then only a batch of what was compared before goes without a comparison, and others of a kind
    that has shown nothing again and again: the longer it has not, the rarer they are compared.
    """

    def __init__(self, inputs: int) -> None:
        self._missing = dict.fromkeys(range(inputs), PROOFS)  # by input, while any are
        self._alike: dict[int, set[Hashable]] = {}  # what all requests of a compared batch had
        self._pauses: dict[tuple[int, str], _Pause] = {}  # by input and kind

    @property
    def is_complete(self) -> bool:
        return not self._missing

    def to_compare(self, requests: Sequence[list[np.ndarray]]) -> tuple[int, int] | None:
        """Which two of a joined step must be compared, if any. To be asked once for each step."""
        pauses = []
        for at in self._missing:
            mark = _mark(requests, at)
            if mark is not None and mark in self._alike.get(at, ()):
                continue
            if mark is None and (jumps := _jumps(requests, at)):
                return jumps[0], jumps[-1] + 1
            pauses.append(self._pause(requests, at, mark))
        is_due = [pause.is_over() for pause in pauses]  # each has seen a step
        return (0, len(requests) - 1) if any(is_due) else None

    def add(self, requests: Sequence[list[np.ndarray]], compared: tuple[int, int]) -> None:
        """These two of them got together what each gets alone."""
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
    """Steps of one kind that go without a comparison, because those before have shown nothing."""

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
    """Whether a request got what it gets alone, but for rounding."""
    return all(
        _is_close(np.asarray(value), np.asarray(joined[name])) for name, value in alone.items()
    )


def _mark(requests: Sequence[list[np.ndarray]], at: int) -> Hashable | None:
    """The same for batches of the same, to remember it without holding it; None if requests differ.
    Of what is one row many times only that row counts, and of what one value fills only that."""
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
    """What compares small arrays most quickly: it is done for each request of a batch."""
    return tuple(array.ravel().tolist()) if array.dtype.hasobject else array.tobytes()


def _jumps(requests: Sequence[list[np.ndarray]], at: int) -> list[int]:
    """Which requests differ from the next one by more than rounding, in the rows that all have."""
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
    """Of each request, but for infinities."""
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
