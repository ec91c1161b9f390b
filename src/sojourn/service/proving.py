"""Whether the rows of requests depend on each other. Pure.

That they do not is never believed but seen. A first dimension that is left open may as well be
time, and then joined requests would get wrong answers in silence. So the answers of the first
joined steps are compared with what the model says to a request alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

PROOFS = 3  # comparisons that an input takes part in before it is trusted
# Relative to the largest value: sums are taken in another order, but not of other rows.
_TOLERANCES = {"float64": 1e-6, "float32": 1e-3}
_COARSE = 2e-2  # of shorter types
_APART = 10  # tolerances between requests: less of a difference could be lost in the answers

Outputs = Mapping[str, np.ndarray]


class Proof:
    """What has been seen of one target, for as long as that lives.

    Requests that are alike prove nothing: with x - mean(x) over the rows they get the same together
    as alone. So each input must have differed between neighbours; until then only a batch of what
    was compared before goes without a comparison.
    """

    def __init__(self, inputs: int) -> None:
        self._missing = dict.fromkeys(range(inputs), PROOFS)  # by input, while any are
        self._alike: dict[int, Hashable] = {}  # what all requests of a compared batch had there

    @property
    def is_complete(self) -> bool:
        return not self._missing

    def is_needed(self, requests: Sequence[list[np.ndarray]]) -> bool:
        """Whether a joined step of these must be compared."""
        alike = self._alike
        return any(
            _mark(arrays[at]) != alike.get(at) for at in self._missing for arrays in requests
        )

    def add(self, requests: Sequence[list[np.ndarray]]) -> None:
        """The first and the last of these got together what each gets alone."""
        for at in tuple(self._missing):
            marks = {_mark(arrays[at]) for arrays in requests}
            if len(marks) == 1:
                self._alike[at] = marks.pop()
            elif _differ(requests[0][at], requests[1][at]) and _differ(
                requests[-1][at], requests[-2][at]
            ):
                self._missing[at] -= 1
                if not self._missing[at]:
                    del self._missing[at]


def agree(alone: Outputs, joined: Outputs) -> bool:
    """Whether a request got what it gets alone, but for rounding."""
    return all(
        _is_close(np.asarray(value), np.asarray(joined[name])) for name, value in alone.items()
    )


def _mark(array: np.ndarray) -> Hashable:
    """The same for the same values: to remember, without holding them."""
    values = tuple(array.ravel().tolist()) if array.dtype.hasobject else array.tobytes()
    return array.shape, hash(values)


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
