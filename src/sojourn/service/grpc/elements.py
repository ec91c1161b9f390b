"""Arrays from elements that are listed in a field of a message, after checks."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from sojourn.service.failures import invalid


def narrowed(values: np.ndarray, dtype: np.dtype, name: str) -> np.ndarray:
    """Convert integers to another integer type. Raises Refused if one does not fit."""
    if values.dtype == dtype:
        return values
    narrow = values.astype(dtype)
    changed = narrow.astype(values.dtype) != values
    if changed.any():
        raise invalid(f"input {name!r}: {values[changed][0]} does not fit into {dtype}")
    return narrow


def as_strings(values: Sequence[bytes], shape: tuple[int, ...], name: str) -> np.ndarray:
    """Make an array of bytes objects. Raises Refused if their number does not fit the shape."""
    if len(values) != prod(shape):
        raise invalid(
            f"input {name!r}: shape {list(shape)} takes {prod(shape)} strings, "
            f"and {len(values)} came"
        )
    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(shape)
