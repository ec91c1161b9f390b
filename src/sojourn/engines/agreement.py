"""Compare the outputs of two engines. Pure functions.

Floats agree if their largest difference, divided by the largest magnitude in the output, is within
a tolerance: near zero, relative differences of single elements mean nothing. Integers and booleans
agree if they are equal.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import numpy as np

Outputs = Mapping[str, np.ndarray]


def disagreement(expected: Outputs, got: Outputs, tolerance: float) -> tuple[float, str]:
    """Return the largest difference and a description of the disagreement, empty if none."""
    worst, wrong = difference(expected, got)
    if not wrong and worst > tolerance:
        wrong = f"differs by {worst:.0e}, and {tolerance:.0e} is allowed"
    return worst, wrong


def hides(expected: Outputs, got: Outputs, tolerance: float) -> bool:
    """Whether the outputs disagree where `got` is finite, so that its user could not notice."""
    told = {}
    for name, array in expected.items():
        one, other = np.asarray(array), np.asarray(got.get(name, array))
        if one.dtype.kind == "f" and (one.dtype, one.shape) == (other.dtype, other.shape):
            one = np.where(np.isfinite(other), one, other)
        told[name] = one
    return bool(disagreement(told, got, tolerance)[1])


def difference(expected: Outputs, got: Outputs) -> tuple[float, str]:
    """Return the largest difference between floats and a description of any other mismatch."""
    if list(expected) != list(got):
        return 0.0, f"it gives {list(got)} instead of {list(expected)}"
    worst = 0.0
    for name, array in expected.items():
        one, other = np.asarray(array), np.asarray(got[name])
        if one.dtype != other.dtype or one.shape != other.shape:
            return worst, (
                f"{name!r} is {other.dtype}{list(other.shape)} instead of "
                f"{one.dtype}{list(one.shape)}"
            )
        if one.dtype.kind not in "fc":
            if not np.array_equal(one, other):
                return worst, f"{name!r} has {int((one != other).sum())} other values"
            continue
        finite = np.isfinite(one)
        if not np.array_equal(finite, np.isfinite(other)):
            return worst, f"{name!r} is finite in other places"
        if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
            return worst, f"{name!r} has other infinities"
        if finite.any():
            scale = float(np.abs(one[finite]).max()) or 1.0
            with np.errstate(over="ignore"):
                differs = float(np.abs(one[finite] - other[finite]).max()) / scale
            worst = max(worst, min(differs, sys.float_info.max))  # finite, so that it can be stored
    return worst, ""
