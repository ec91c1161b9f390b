"""The inputs of a step: converted where that is harmless, refused where it would lose data.

By convention, as in TensorFlow, float64 narrows to float32 and integers widen to floats; both may
round. Conversions that lose data silently in TensorFlow raise InputError here: complex to real,
real to integer, numbers that do not fit, None among objects, masks. Text arrives as UTF-8 bytes.

This module is not used for an array that has the right dtype and shape already.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from sojourn.errors import InputError
from sojourn.values import TensorSpec, plain_arrays
from sojourn.values.dtypes import BY_NAME, STRING, name_of

ANY = "any"
# TensorFlow crashes on text of a higher rank: it writes beyond its own memory.
_MAX_TEXT_RANK = 32


def as_array(name: str, spec: TensorSpec, value: Any) -> np.ndarray:
    """Return the array to send for this input."""
    if spec.dtype == ANY:
        array = _as_anything(name, spec, value)
    elif type(value) is not np.ndarray and plain_arrays.hides_elements(value):
        raise _refusal(name, spec, "got a masked array, and what is masked would be fed")
    elif spec.dtype == STRING:
        array = _as_strings(name, spec, value)
    else:
        array = _as_numbers(name, spec, value)
    if not spec.accepts(array.shape):
        raise _refusal(name, spec, f"got {_described(array)}")
    return array


# -- numbers -----------------------------------------------------------------------------------


def _as_numbers(name: str, spec: TensorSpec, value: Any) -> np.ndarray:
    wanted = BY_NAME.get(spec.dtype)
    if wanted is None:
        raise InputError(f"input {name!r} takes {spec}, which cannot be fed from here")
    array = _taken(name, spec, value)
    if array.dtype == wanted:
        return array
    wanted_kind = _kind(wanted)
    if wanted_kind == "i" and array.dtype.kind in "fO" and not isinstance(value, np.ndarray):
        # numpy converts a list of integers beyond 63 bits to floats or objects.
        whole = _taken(name, spec, value, object)
        if all(isinstance(item, int) for item in whole.reshape(-1).tolist()):
            return _fitted(name, spec, whole, wanted)
    if array.dtype.kind in plain_arrays.TEXT + "Mm" and array.size:
        raise _refusal(name, spec, f"got {_described(array)}: {_first(array)}")
    order = {"b": 0, "i": 1, "f": 2, "c": 3}
    if order.get(_kind(array.dtype), 9) > order.get(wanted_kind, -1):
        raise _refusal(name, spec, f"got {_described(array)}, which would lose information")
    if np.can_cast(array.dtype, wanted):
        return array.astype(wanted)
    if wanted_kind == "i":
        return _fitted(name, spec, array, wanted)
    return _narrowed(name, spec, array, wanted)


def _kind(dtype: np.dtype) -> str:
    """Return `"b"`, `"i"` for all integers, `"f"` or `"c"`; `""` for dtypes that are no numbers."""
    kind = dtype.kind
    if kind == "V":
        if dtype.names is not None or name_of(dtype) is None:
            return ""  # records and raw bytes; bfloat16, int4 and similar types are numbers
        kind = "i" if "int" in dtype.name else "f"
    return "i" if kind == "u" else kind


def _fitted(name: str, spec: TensorSpec, whole: np.ndarray, wanted: np.dtype) -> np.ndarray:
    """Convert integers to another size without changing any value."""
    if whole.size:
        limits = ml_dtypes.iinfo(wanted)
        for extreme in int(whole.min()), int(whole.max()):
            if not limits.min <= extreme <= limits.max:
                raise _refusal(name, spec, f"{extreme} does not fit")
    return whole.astype(wanted)


def _narrowed(name: str, spec: TensorSpec, array: np.ndarray, wanted: np.dtype) -> np.ndarray:
    """Convert with rounding; refuse finite values that would become infinite or NaN."""
    try:
        # numpy's own types report an overflow at no cost; other types (bfloat16...) do not.
        with np.errstate(over="raise", under="ignore", invalid="ignore"):
            converted = array.astype(wanted)
        if wanted.isbuiltin == 1 or np.isfinite(converted).all():
            return converted
    except FloatingPointError:
        with np.errstate(all="ignore"):
            converted = array.astype(wanted)
    # In one dimension, because numpy does not support boolean indexing for every rank.
    before, after = array.reshape(-1), converted.reshape(-1)
    too_large = np.isfinite(before.real) & ~np.isfinite(after.real)
    if wanted.kind == "c":
        too_large |= np.isfinite(before.imag) & ~np.isfinite(after.imag)
    if too_large.any():
        raise _refusal(name, spec, f"{before[too_large][0]} does not fit")
    return converted


# -- strings and anything ------------------------------------------------------------------------


def _as_strings(name: str, spec: TensorSpec, value: Any) -> np.ndarray:
    array = _taken(name, spec, value, None if isinstance(value, np.ndarray) else object)
    if array.dtype.kind not in plain_arrays.TEXT and array.size:
        raise _refusal(name, spec, f"got {_described(array)}")
    if array.ndim > _MAX_TEXT_RANK:
        raise _refusal(
            name, spec, f"got text of rank {array.ndim}, and TensorFlow takes {_MAX_TEXT_RANK}"
        )
    try:
        return plain_arrays.encoded(value, array)
    except ValueError as error:
        raise _refusal(name, spec, str(error)) from error.__cause__


def _as_anything(name: str, spec: TensorSpec, value: Any) -> np.ndarray:
    try:
        return plain_arrays.anything(value)
    except ValueError as error:
        raise _refusal(name, spec, str(error)) from error.__cause__


# -- both --------------------------------------------------------------------------------------


def _taken(name: str, spec: TensorSpec, value: Any, dtype: Any = None) -> np.ndarray:
    try:
        return plain_arrays.taken(value, dtype)
    except ValueError as error:
        raise _refusal(name, spec, str(error)) from error.__cause__


def _refusal(name: str, spec: TensorSpec, why: str) -> InputError:
    takes = "arrays of numbers or strings" if spec.dtype == ANY else spec
    return InputError(f"input {name!r} takes {takes}; {why}")


def _described(array: np.ndarray) -> str:
    dtype = None if array.dtype.kind == "O" else name_of(array.dtype)
    return str(TensorSpec(dtype or str(array.dtype), array.shape))


def _first(array: np.ndarray) -> str:
    return plain_arrays.shortened(array.reshape(-1)[0])
