"""Values of the user's as arrays that can travel: numbers as they are, text as UTF-8 bytes.

Whatever numpy would damage on the way is a ValueError.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from sojourn.values.dtypes import name_of

TEXT = "OSUT"  # kinds of arrays that may hold text; T is numpy's own type for it


def anything(value: Any) -> np.ndarray:
    """Numbers of any kind, or text."""
    if type(value) is not np.ndarray and hides_elements(value):
        raise ValueError("it is a masked array, and what is masked would be sent")
    array = taken(value)
    if array.dtype.kind in TEXT:
        if not isinstance(value, np.ndarray):
            # As objects: numpy makes strings of numbers among strings, and drops their last NULs.
            array = taken(value, object)
        return encoded(value, array)
    if name_of(array.dtype) is None:
        raise ValueError(f"arrays of dtype {array.dtype} cannot be sent")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def taken(value: Any, dtype: Any = None) -> np.ndarray:
    """What numpy makes of it."""
    try:
        return np.asarray(value, dtype)
    except MemoryError:
        raise
    except Exception as error:  # numpy's, or that of an `__array__` of the user's
        raise ValueError(f"the value is not an array: {error}") from error


def encoded(value: Any, array: np.ndarray) -> np.ndarray:
    """Text as bytes. `array` is what numpy has made of the value."""
    # A text by itself is taken as it is: numpy drops the last NULs of one of its own.
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
        result[i] = bytes(item)  # numpy's own kind of bytes would drop its last NULs later on
    return result.reshape(array.shape)


def hides_elements(value: Any, depth: int = 3) -> bool:
    """Whether it is a masked array that masks anything, or a list of arrays with such a one."""
    if "numpy.ma" not in sys.modules:
        return False
    if isinstance(value, np.ndarray):
        return isinstance(value, np.ma.MaskedArray) and bool(np.ma.is_masked(value))
    if not (depth and isinstance(value, list | tuple) and value):
        return False
    # A list of numbers may be long, and shows it by its first.
    holds_arrays = isinstance(value[0], np.ndarray | list | tuple)
    return holds_arrays and any(hides_elements(part, depth - 1) for part in value)


def shortened(item: object) -> str:
    """For a message."""
    return f"{item!r}"[:80]
