"""What goes into a step: converted where that is harmless, refused where it would be damaged.

By convention, as in TensorFlow, float64 narrows to float32 and integers widen to floats. What
TensorFlow damages without a word is an InputError here: complex to real, real to integer, numbers
that do not fit, None among objects.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sojourn.errors import InputError
from sojourn.transport.dtypes import BY_NAME, STRING, name_of
from sojourn.values import TensorSpec

ANY = "any"


def as_array(name: str, spec: TensorSpec, value: Any) -> np.ndarray:
    """The array to send for this input."""
    if spec.dtype == STRING:
        array = _as_strings(name, spec, value)
    elif spec.dtype == ANY:
        array = _as_anything(name, value)
    else:
        array = _as_numbers(name, spec, value)
    if not spec.accepts(array.shape):
        raise InputError(f"input {name!r} takes {spec}; got {_described(array)}")
    return array


def _as_numbers(name: str, spec: TensorSpec, value: Any) -> np.ndarray:
    wanted = BY_NAME.get(spec.dtype)
    if wanted is None:
        raise InputError(f"input {name!r} takes {spec}, which cannot be fed from here")
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise InputError(f"input {name!r} takes {spec}; the value is no array: {error}") from None
    if array.dtype == wanted:
        return array
    if array.dtype.kind in "OSUMm" and array.size:
        raise InputError(f"input {name!r} takes {spec}; got {_described(array)}: {_first(array)}")
    if not _fits_kind(array.dtype, wanted):
        raise InputError(
            f"input {name!r} takes {spec}; got {_described(array)}, which would lose what it says"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        converted = array.astype(wanted)
    if array.dtype.kind in "iu" and wanted.kind in "iu" and not np.array_equal(converted, array):
        bad = array[converted != array].flat[0]
        raise InputError(f"input {name!r} takes {spec}; {bad} does not fit")
    return converted


def _fits_kind(given: np.dtype, wanted: np.dtype) -> bool:
    if wanted.kind == "V" and wanted.names is None:  # bfloat16 and its like; int4 and its like
        wanted_kind = "i" if "int" in wanted.name else "f"
    else:
        wanted_kind = wanted.kind
    given_kind = given.kind
    if given_kind == "V" and given.names is None:
        given_kind = "i" if "int" in given.name else "f"
    order = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
    if given_kind not in order or wanted_kind not in order:
        return False
    return order[given_kind] <= order[wanted_kind]


def _as_strings(name: str, spec: TensorSpec, value: Any) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind not in "OSU":
        if array.size == 0:
            return array.astype(object)
        raise InputError(f"input {name!r} takes {spec}; got {_described(array)}")
    if array.dtype.kind == "S":
        # numpy drops trailing NULs of fixed-width bytes; take them from the value itself if it can
        array = np.array(value, dtype=object) if not isinstance(value, np.ndarray) else array
    for item in array.reshape(-1).tolist() if array.dtype.kind == "O" else ():
        if not isinstance(item, str | bytes):
            raise InputError(f"input {name!r} takes {spec}; got the element {item!r}")
    return array


def _as_anything(name: str, value: Any) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind == "O":
        for item in array.reshape(-1).tolist():
            if not isinstance(item, str | bytes):
                raise InputError(f"input {name!r} takes arrays of numbers or texts; got {item!r}")
    elif name_of(array.dtype) is None:
        raise InputError(f"input {name!r}: arrays of dtype {array.dtype} cannot be sent")
    return array


def _described(array: np.ndarray) -> str:
    return str(TensorSpec(name_of(array.dtype) or str(array.dtype), array.shape))


def _first(array: np.ndarray) -> str:
    return f"{array.flat[0]!r}"[:80]
