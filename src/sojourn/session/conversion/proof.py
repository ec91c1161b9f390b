"""Whether two engines give the same answers. Pure.

Floats agree if their largest difference, by the largest magnitude of the output, is within a
tolerance: near zero, relative differences of single elements mean nothing. Integers and truth
values agree if they are equal. Outputs that hardly change with the input prove nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

Outputs = Mapping[str, np.ndarray]

LEAST_TOLERANCE, MOST_TOLERANCE = 1e-5, 1e-3
# The noise of TensorFlow against itself is a sample; another engine may have several times that.
_NOISE_FACTOR = 8
# How far outputs must lie apart, by the tolerance, for an agreement to say anything.
_SPREAD_FACTOR = 20


def difference(expected: Outputs, got: Outputs) -> tuple[float, str]:
    """The worst difference of the floats, and what else is wrong."""
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
            worst = max(worst, float(np.abs(one[finite] - other[finite]).max()) / scale)
    return worst, ""


def tolerance(noise: float) -> float:
    """What is allowed where TensorFlow differs from itself by this much."""
    return min(MOST_TOLERANCE, max(LEAST_TOLERANCE, _NOISE_FACTOR * noise))


def says_nothing(results: Sequence[Outputs], allowed: float) -> str:
    """The name of an output that is all the same whatever goes in, if there is one."""
    for name in results[0] if results else ():
        arrays = [np.asarray(result[name]) for result in results]
        if arrays[0].dtype.kind != "f" or not arrays[0].size:
            continue
        rows = [array.reshape(len(array), -1)[0] for array in arrays if array.ndim]
        rows = rows or [array.reshape(1) for array in arrays]
        same = [row for row in rows if row.shape == rows[0].shape and np.isfinite(row).all()]
        if len(same) < 2:
            continue
        stacked = np.stack(same).astype(np.float64)
        scale = float(np.abs(stacked).max()) or 1.0
        if float(np.ptp(stacked, axis=0).max()) / scale < _SPREAD_FACTOR * allowed:
            return name
    return ""
