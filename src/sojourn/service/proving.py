"""Whether the rows of requests depend on each other. Pure.

That they do not is never believed but seen. A first dimension that is left open may as well be
time, and then joined requests would get wrong answers in silence. So the answers of the first
joined steps are compared with what the model says to a request alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

PROOFS = 3  # comparisons that an input takes part in before it is trusted
_MARKS = 64  # rows that are remembered of an input
_LONGEST_PAUSE = 1024  # steps: it is never given up
# Relative to the largest value: sums are taken in another order, but not of other rows.
_TOLERANCES = {"float64": 1e-6, "float32": 1e-3}
_COARSE = 2e-2  # of shorter types
_APART = 10  # tolerances between requests: less of a difference could be lost in the answers

Outputs = Mapping[str, np.ndarray]


class Proof:
    """What has been seen of one target, for as long as that lives.

    Requests that are alike prove nothing: with x - mean(x) over the rows they get the same together
    as alone. So each input must have differed between neighbours; until then only a batch of what
    was compared before goes without a comparison. Inputs that never differ by much would have every
    step compared for ever: the longer that shows nothing, the rarer it is.
    """

    def __init__(self, inputs: int) -> None:
        self._missing = dict.fromkeys(range(inputs), PROOFS)  # by input, while any are
        self._alike: dict[int, set[Hashable]] = {}  # the rows that whole compared batches had there
        self._compared = 0
        self._pause = 0  # steps that go without a comparison, unless they could show something

    @property
    def is_complete(self) -> bool:
        return not self._missing

    def is_needed(self, requests: Sequence[list[np.ndarray]]) -> bool:
        """Whether a joined step of these must be compared. To be asked once for each."""
        unknown = [
            at
            for at in self._missing
            if (mark := _mark(requests, at)) is None or mark not in self._alike.get(at, ())
        ]
        if not unknown:
            return False
        ends = ((0, 1), (-1, -2), (0, -1))
        if any(_differ(requests[a][at], requests[b][at]) for at in unknown for a, b in ends):
            return True
        self._pause -= 1
        return self._pause < 0

    def add(self, requests: Sequence[list[np.ndarray]]) -> None:
        """The first and the last of these got together what each gets alone."""
        for at in tuple(self._missing):
            mark, alike = _mark(requests, at), self._alike.setdefault(at, set())
            if mark is not None:
                if len(alike) < _MARKS:
                    alike.add(mark)
            elif _differ(requests[0][at], requests[1][at]) and _differ(
                requests[-1][at], requests[-2][at]
            ):
                self._missing[at] -= 1
                if not self._missing[at]:
                    del self._missing[at]
        self._compared += 1
        self._pause = min(2 ** max(0, self._compared - PROOFS), _LONGEST_PAUSE) - 1


def agree(alone: Outputs, joined: Outputs) -> bool:
    """Whether a request got what it gets alone, but for rounding."""
    return all(
        _is_close(np.asarray(value), np.asarray(joined[name])) for name, value in alone.items()
    )


def _mark(requests: Sequence[list[np.ndarray]], at: int) -> Hashable | None:
    """The same for batches of the same row, to remember it without holding it; None if rows differ.
    Of what one value fills, only that value counts: zeros are zeros, however many."""
    row = requests[0][at][:1]
    if not all((arrays[at] == row).all() for arrays in requests):
        return None
    value = row.ravel()[:1]
    row = value if (row == value).all() else row
    return row.shape, hash(tuple(row.ravel().tolist()) if row.dtype.hasobject else row.tobytes())


def _differ(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two requests differ by more than rounding, in the rows that both have."""
    rows = min(len(one), len(other))
    return not _is_close(one[:rows], other[:rows], _APART)


def _is_close(alone: np.ndarray, joined: np.ndarray, tolerances: int = 1) -> bool:
    if alone.shape != joined.shape:
        return False
    if alone.dtype.kind not in "fcV":
        return np.array_equal(alone, joined)
    tolerance = tolerances * _TOLERANCES.get(alone.dtype.name, _COARSE)
    wide = np.complex128 if alone.dtype.kind == "c" else np.float64
    a, b = alone.astype(wide), joined.astype(wide)
    finite = np.abs(a[np.isfinite(a)])
    largest = float(finite.max()) if finite.size else 0.0
    return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance * largest, equal_nan=True))
