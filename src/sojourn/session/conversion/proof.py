"""How far answers may differ, and which of them prove something. Pure.

Outputs that hardly change with the input prove nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sojourn.engines.agreement import Outputs, difference

LEAST_TOLERANCE, MOST_TOLERANCE = 1e-5, 1e-3
# The noise of TensorFlow against itself is a sample; another engine may have several times that.
_NOISE_FACTOR = 8
# How far outputs must lie apart, by the tolerance, for an agreement to say anything.
_SPREAD_FACTOR = 20


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


__all__ = [
    "LEAST_TOLERANCE",
    "MOST_TOLERANCE",
    "Outputs",
    "difference",
    "says_nothing",
    "tolerance",
]
