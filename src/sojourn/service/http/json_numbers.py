"""Lists of fractions in JSON as arrays: by simdjson, in a fraction of the time of others.

Only what needs no second thought is read here. Whatever else a list may hold (true, null, strings,
NaN, numbers that do not fit, rows of different lengths) is left to a slower reader, which says what
is wrong with it.
"""

from __future__ import annotations

import itertools
import math
import operator
from typing import Any

import msgspec
import numpy as np
import simdjson

_OF_NUMBERS = b"0123456789+-.eE \t\r\n"
_OTHERWISE = (ValueError, TypeError, AttributeError, IndexError, RuntimeError, ArithmeticError)


def fractions(text: bytes | msgspec.Raw, dtype: np.dtype, rank: int) -> np.ndarray | None:
    """The array in this text, lists nested so deeply; None if it is something else."""
    try:
        array = _read(bytes(text), rank)
        if array is None:
            return None
        with np.errstate(over="raise"):
            return array.astype(dtype, copy=False)
    except _OTHERWISE:
        return None


def _read(text: bytes, rank: int) -> np.ndarray | None:
    # A parser of its own: one that is used again must not be known to an earlier result.
    found: Any = simdjson.Parser().parse(text)
    # It puts whatever lists there are one behind the other; there is no string in them.
    flat = np.frombuffer(found.as_buffer(of_type="d"), np.float64)
    if rank == 1:
        return flat if text.find(b"[") == text.rfind(b"[") else None
    if rank == 2:
        lengths = {len(row) for row in found}
        is_even = len(lengths) == 1 and text.count(b"[") == 1 + len(found)
        return flat.reshape(len(found), lengths.pop()) if is_even else None
    shape = [len(found)]
    while len(shape) < rank:
        found = found[0]
        shape.append(len(found))
    # Counted first: the shape is that of the first of each, and may be far too large for the rest.
    lists = 1 + sum(itertools.accumulate(shape[:-1], operator.mul))
    is_even = (
        text.count(b"[") == lists
        and flat.size == math.prod(shape)
        and text.translate(None, _OF_NUMBERS) == _lists(shape)
    )
    return flat.reshape(shape) if is_even else None


def _lists(shape: list[int]) -> bytes:
    """An array of this shape as JSON has it, without its numbers."""
    inner = b""
    for size in reversed(shape):
        inner = b"[" + b",".join([inner] * size) + b"]"
    return inner
