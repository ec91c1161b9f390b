"""Conversion of users' values to arrays that can be sent: numbers as they are, text as UTF-8 bytes.

A value that numpy would damage in the conversion raises ValueError.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from sojourn.values.dtypes import name_of

TEXT = "OSUT"  # the dtype kinds that may hold text; T is numpy's StringDType


def anything(value: Any) -> np.ndarray:
    """Convert numbers of any kind, or text."""
    if type(value) is not np.ndarray and hides_elements(value):
        raise ValueError("it is a masked array, and what is masked would be sent")
    array = taken(value)
    if array.dtype.kind in TEXT:
        if not isinstance(value, np.ndarray):
            # Convert to objects: as strings, numpy would turn numbers among them into text, and
            # drop trailing NULs.
            array = taken(value, object)
        return encoded(value, array)
    if name_of(array.dtype) is None:
        raise ValueError(f"arrays of dtype {array.dtype} cannot be sent")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def taken(value: Any, dtype: Any = None) -> np.ndarray:
    """Convert a value with numpy."""
    try:
        return np.asarray(value, dtype)
    except MemoryError:
        raise
    except Exception as error:  # numpy's own error, or one in the user's `__array__`
        raise ValueError(f"the value is not an array: {error}") from error


def encoded(value: Any, array: np.ndarray) -> np.ndarray:
    """Encode text as bytes. `array` is the value as converted by numpy."""
    # A single text is taken from `value`: numpy drops the trailing NULs of its own strings.
    items = [value] if isinstance(value, str | bytes) else array.reshape(-1).tolist()
    result = np.empty(len(items), dtype=object)
    for i, item in enumerate(items):
        if isinstance(item, str):
            try:
                item = item.encode()
            except UnicodeEncodeError as error:
                raise ValueError(f"{item!r} cannot be sent: {error}") from None
        elif not isinstance(item, bytes):
            raise ValueError(f"got the element {shortened(item)}")
        result[i] = bytes(item)  # as np.bytes_ it would lose its trailing NULs later
    return result.reshape(array.shape)


def hides_elements(value: Any, depth: int = 3) -> bool:
    """Whether a value is a masked array that masks anything, or a list that contains one."""
    if "numpy.ma" not in sys.modules:
        return False
    if isinstance(value, np.ndarray):
        return isinstance(value, np.ma.MaskedArray) and bool(np.ma.is_masked(value))
    if not (depth and isinstance(value, list | tuple) and value):
        return False
    # A list of numbers may be long: its first item shows that it holds no arrays.
    holds_arrays = isinstance(value[0], np.ndarray | list | tuple)
    return holds_arrays and any(hides_elements(part, depth - 1) for part in value)


def shortened(item: object) -> str:
    """Return the repr of an item, cut for a message."""
    return f"{item!r}"[:80]
