"""Every element type that TensorFlow and numpy share, with its number in messages."""

from __future__ import annotations

import ml_dtypes
import numpy as np

STRING = "string"

_BUILTIN = (
    "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 "
    "float16 float32 float64 complex64 complex128"
).split()
_ML = (
    "bfloat16 float8_e5m2 float8_e4m3fn float8_e4m3fnuz float8_e4m3b11fnuz float8_e5m2fnuz "
    "int4 uint4 int2 uint2"
).split()
# TensorFlow represents its quantized types as numpy records of one field.
_QUANTIZED = {
    "qint8": np.int8,
    "quint8": np.uint8,
    "qint16": np.int16,
    "quint16": np.uint16,
    "qint32": np.int32,
}


def _all_types() -> dict[str, np.dtype]:
    types = {name: np.dtype(name) for name in _BUILTIN}
    types.update({n: np.dtype(getattr(ml_dtypes, n)) for n in _ML if hasattr(ml_dtypes, n)})
    types.update({name: np.dtype([(name, base)]) for name, base in _QUANTIZED.items()})
    return types


BY_NAME: dict[str, np.dtype] = _all_types()
# The numbers follow a fixed list, so that both sides agree whatever version of ml_dtypes they have.
NAMES: tuple[str, ...] = (STRING, *_BUILTIN, *_ML, *_QUANTIZED)
NUMBER_OF_NAME = {name: number for number, name in enumerate(NAMES)}
NUMBER_OF_DTYPE: dict[np.dtype, int] = {
    dtype: NUMBER_OF_NAME[name] for name, dtype in BY_NAME.items()
}
DTYPE_OF_NUMBER: dict[int, np.dtype] = {
    NUMBER_OF_NAME[name]: dtype for name, dtype in BY_NAME.items()
}


def name_of(dtype: np.dtype) -> str | None:
    """Return the name of a numpy dtype: `"string"` for text and objects, None if not sendable."""
    if dtype.kind in "OSU":
        return STRING
    number = NUMBER_OF_DTYPE.get(dtype.newbyteorder("=") if dtype.byteorder == ">" else dtype)
    return None if number is None else NAMES[number]
