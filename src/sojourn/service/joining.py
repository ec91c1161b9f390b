"""A step for several requests: their rows go in together, and each gets its own back.

That the rows of a model do not depend on each other is not believed but seen. A first dimension
that is left open may as well be time, and then joined requests would get wrong answers in silence.
So the answers of the first joined steps are compared with what the model says to a request alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sojourn.service.targets import Target
from sojourn.values.rows import Rows

PROOFS = 3  # joined steps that are compared before the target is trusted
# Relative to the largest value: sums are taken in another order, but not of other rows.
_TOLERANCES = {"float64": 1e-6, "float32": 1e-3}
_COARSE = 2e-2  # of shorter types

Outputs = Mapping[str, np.ndarray]


class NoRows(Exception):
    """Joined requests got something else than each alone: the first dimension is no batch."""


def feeds_of(target: Target, requests: Sequence[list[np.ndarray]]) -> dict[str, Any]:
    """What to feed for the arrays of these requests."""
    if len(requests) == 1:
        return dict(zip(target.feeds, requests[0], strict=True))
    columns = zip(*requests, strict=True)
    return {name: Rows(parts) for name, parts in zip(target.feeds, columns, strict=True)}


def split(target: Target, values: Sequence[Any], sizes: Sequence[int]) -> list[Outputs]:
    """The outputs of a joined step, to each request as many rows as it has sent."""
    rows = sum(sizes)
    if any(np.ndim(value) == 0 or len(value) != rows for value in values):
        raise NoRows
    answers: list[Outputs] = []
    at = 0
    for size in sizes:
        part = slice(at, at + size)
        answers.append(
            {name: value[part] for name, value in zip(target.names, values, strict=True)}
        )
        at += size
    return answers


def says_something(arrays: Sequence[np.ndarray]) -> bool:
    """Whether a comparison with these inputs proves anything: all zeros may hide what depends."""
    return any(bool(array.any()) for array in arrays)


def agree(alone: Outputs, joined: Outputs) -> bool:
    """Whether a request got what it gets alone, but for rounding."""
    return all(
        _is_close(np.asarray(value), np.asarray(joined[name])) for name, value in alone.items()
    )


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
