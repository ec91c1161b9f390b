"""Lists of fractions in JSON as arrays: by simdjson, in a fraction of the time of others.

Only what needs no second thought is read here. Whatever else a list may hold (true, null, strings,
NaN, numbers that do not fit, rows of different lengths) is left to a slower reader, which says what
is wrong with it. And back: in as few digits as TensorFlow Serving writes.
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
_POWERS = 10.0 ** np.arange(23)  # those that are exact: by them a decimal is what it reads as
_EXACT = len(_POWERS) - 1
_FEW = 24  # numbers that are looked at more quickly one by one
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


def in_few_digits(array: np.ndarray) -> np.ndarray:
    """Numbers of 32 bits as those of 64 that JSON writes in six digits, or in nine where six do not
    say which one it is: 0.1, and not 0.10000000149011612."""
    if array.size <= _FEW:
        flat = list(map(_in_few_digits, array.reshape(-1).tolist()))
        return np.array(flat, np.float64).reshape(array.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        wide = array.astype(np.float64)
        digits = 1 + np.floor(np.log10(np.abs(wide)))  # before the point
        is_usual = (digits >= 9 - _EXACT) & (digits <= 6 + _EXACT)
        digits[~is_usual] = 0
        found = _rounded(wide, 6 - digits)
        is_other = found.astype(np.float32) != array
    if is_other.any():
        found[is_other] = _rounded(wide[is_other], 9 - digits[is_other])
    if not is_usual.all():  # zero, none, infinite, or so small or large that this is not exact
        is_other = ~is_usual & (wide != 0)
        found[is_other] = list(map(_in_few_digits, wide[is_other].tolist()))
    return found


def _rounded(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Each to so many places behind the point, or before it where that is negative."""
    places = places.astype(np.intp)
    up, down = _POWERS[np.maximum(places, 0)], _POWERS[np.maximum(-places, 0)]
    rounded: np.ndarray = np.rint(values * up / down) / up * down
    return rounded


def _in_few_digits(value: float) -> float:
    found = float(f"{value:.6g}")
    return found if _FLOAT.unpack(_FLOAT.pack(found))[0] == value else float(f"{value:.9g}")
