"""Decide how far answers may differ, and whether they prove anything. Pure.

Outputs that hardly change with the input prove nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sojourn.engines.agreement import Outputs, difference, disagreement, hides

LEAST_TOLERANCE, MOST_TOLERANCE = 1e-5, 1e-3
# Tolerance divided by the noise of TensorFlow against itself: that noise is only a sample, and
# another engine's may be several times as large.
_NOISE_FACTOR = 8
# The least spread of outputs, divided by the tolerance, for which agreement proves anything.
_SPREAD_FACTOR = 20


def tolerance(noise: float) -> float:
    """The tolerance for a model on which TensorFlow differs from itself by `noise`."""
    return min(MOST_TOLERANCE, max(LEAST_TOLERANCE, _NOISE_FACTOR * noise))


def says_nothing(results: Sequence[Outputs], allowed: float) -> str:
    """Return the name of an output that hardly varies with the input, or "".

    Outputs of whole numbers (a class, a count) may be constant, unless all outputs are.
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
    """Whether the spread of the first rows, divided by their largest magnitude, exceeds `least`."""
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
