"""JSON lists of floating-point numbers as arrays: by simdjson, far faster than other parsers.

Only plain numbers in even rows are read here. Any other content (true, null, strings, NaN, numbers
that do not fit, rows of different lengths) is left to a slower reader, which reports what is wrong
with it. In the other direction, float32 values are rounded to as few digits as TensorFlow Serving
writes.
"""

from __future__ import annotations

import itertools
import math
import operator
import struct
from typing import Any

import msgspec
import numpy as np
import simdjson

_OF_NUMBERS = b"0123456789+-.eE \t\r\n"
_FLOAT = struct.Struct("f")
_POWERS = 10.0 ** np.arange(23)  # the powers of ten that float64 holds exactly
_EXACT = len(_POWERS) - 1
_FEW = 24  # up to so many numbers are converted faster one by one
_OTHERWISE = (ValueError, TypeError, AttributeError, IndexError, RuntimeError, ArithmeticError)


def fractions(text: bytes | msgspec.Raw, dtype: np.dtype, rank: int) -> np.ndarray | None:
    """The array in this text, whose lists are nested `rank` deep; None if it is anything else."""
    try:
        array = _read(bytes(text), rank)
        if array is None:
            return None
        with np.errstate(over="raise"):
            return array.astype(dtype, copy=False)
    except _OTHERWISE:
        return None


def _read(text: bytes, rank: int) -> np.ndarray | None:
    # A new parser each time: simdjson refuses to reuse one while an earlier result refers to it.
    found: Any = simdjson.Parser().parse(text)
    # `as_buffer` flattens lists of any nesting, and fails on strings.
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
    # Counted before `_lists` builds text of this shape: the shape is read from the first list of
    # each level only, and may be far larger than the data.
    lists = 1 + sum(itertools.accumulate(shape[:-1], operator.mul))
    is_even = (
        text.count(b"[") == lists
        and flat.size == math.prod(shape)
        and text.translate(None, _OF_NUMBERS) == _lists(shape)
    )
    return flat.reshape(shape) if is_even else None


def _lists(shape: list[int]) -> bytes:
    """The JSON text of an array of this shape, without its numbers."""
    inner = b""
    for size in reversed(shape):
        inner = b"[" + b",".join([inner] * size) + b"]"
    return inner


def in_few_digits(array: np.ndarray) -> np.ndarray:
    """Convert float32 numbers to the float64 numbers that JSON writes in six digits, or in nine
    where six do not identify the float32: 0.1 instead of 0.10000000149011612."""
    if array.size <= _FEW:
        flat = list(map(_in_few_digits, array.reshape(-1).tolist()))
        return np.array(flat, np.float64).reshape(array.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        wide = array.astype(np.float64)
        digits = 1 + np.floor(np.log10(np.abs(wide)))  # before the decimal point
        is_usual = (digits >= 9 - _EXACT) & (digits <= 6 + _EXACT)
        digits[~is_usual] = 0
        found = _rounded(wide, 6 - digits)
        is_other = found.astype(np.float32) != array
    if is_other.any():
        found[is_other] = _rounded(wide[is_other], 9 - digits[is_other])
    if not is_usual.all():  # zero, NaN, infinite, or too small or large for exact powers of ten
        is_other = ~is_usual & (wide != 0)
        found[is_other] = list(map(_in_few_digits, wide[is_other].tolist()))
    return found


def _rounded(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Round each value to `places` decimal places; a negative number counts before the point."""
    places = places.astype(np.intp)
    up, down = _POWERS[np.maximum(places, 0)], _POWERS[np.maximum(-places, 0)]
    rounded: np.ndarray = np.rint(values * up / down) / up * down
    return rounded


def _in_few_digits(value: float) -> float:
    found = float(f"{value:.6g}")
    return found if _FLOAT.unpack(_FLOAT.pack(found))[0] == value else float(f"{value:.9g}")
