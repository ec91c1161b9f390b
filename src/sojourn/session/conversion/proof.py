"""How far answers may differ, and which of them prove something. Pure.

Outputs that hardly change with the input prove nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sojourn.engines.agreement import Outputs, difference, disagreement, hides

LEAST_TOLERANCE, MOST_TOLERANCE = 1e-5, 1e-3
# The noise of TensorFlow against itself is a sample; another engine may have several times that.
_NOISE_FACTOR = 8
# How far outputs must lie apart, by the tolerance, for an agreement to say anything.
_SPREAD_FACTOR = 20


def tolerance(noise: float) -> float:
    """What is allowed where TensorFlow differs from itself by this much."""
    return min(MOST_TOLERANCE, max(LEAST_TOLERANCE, _NOISE_FACTOR * noise))


def says_nothing(results: Sequence[Outputs], allowed: float) -> str:
    """The name of an output that is all the same whatever goes in, if there is one.

    Whole numbers may be: a class, a count. But not all of what there is.
    """
    steady = ""
    varies = False
    for name in results[0] if results else ():
        arrays = [np.asarray(result[name]) for result in results]
        is_of_floats = arrays[0].dtype.kind == "f"
        if _moves(arrays, _SPREAD_FACTOR * allowed if is_of_floats else 0.0):
            varies = True
        elif is_of_floats:
            return name
        else:
            steady = steady or name
    return "" if varies else steady


def _moves(arrays: Sequence[np.ndarray], least: float) -> bool:
    """Whether the first rows lie apart by more than this, by their largest magnitude."""
    rows = [array.reshape(len(array) if array.ndim else 1, -1)[0] for array in arrays if array.size]
    rows = [row for row in rows if row.shape == rows[0].shape and np.isfinite(row).all()]
    if len(rows) < 2:
        return len(arrays) == len(rows) == 1  # the only sample that the user gave
    stacked = np.stack(rows).astype(np.float64)
    scale = float(np.abs(stacked).max()) or 1.0
    return float(np.ptp(stacked, axis=0).max()) / scale > least


__all__ = [
    "LEAST_TOLERANCE",
    "MOST_TOLERANCE",
    "Outputs",
    "difference",
    "disagreement",
    "hides",
    "says_nothing",
    "tolerance",
]
