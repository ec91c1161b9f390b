"""Dtypes and shapes out of their serialised form."""

from __future__ import annotations

from sojourn.errors import ModelError
from sojourn.probes.model_files.wire import fields, message, number

# DataType by its number; a reference type is 100 more.
# fmt: off
_DTYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string",
    8: "complex64", 9: "int64", 10: "bool", 11: "qint8", 12: "quint8", 13: "qint32",
    14: "bfloat16", 15: "qint16", 16: "quint16", 17: "uint16", 18: "complex128",
    19: "float16", 20: "resource", 21: "variant", 22: "uint32", 23: "uint64",
    24: "float8_e5m2", 25: "float8_e4m3fn", 29: "int4", 30: "uint4",
}
# fmt: on
_MOST_DIMENSIONS = 254  # TensorFlow's own limit


def dtype_name(code: int) -> str:
    """The name of a DataType."""
    return _DTYPES.get(code - 100 if code > 100 else code, f"dtype {code}")


def parse_shape(data: memoryview) -> tuple[int | None, ...] | None:
    """A TensorShapeProto; `None` for any rank."""
    dimensions: list[int | None] = []
    for part, value in fields(data):
        if part == 3 and number(value):
            return None
        if part == 2:
            size = next((number(v) for p, v in fields(message(value)) if p == 1), 0)
            dimensions.append(size if size >= 0 else None)
            if len(dimensions) > _MOST_DIMENSIONS:
                raise ModelError("damaged: a shape of more than 254 dimensions")
    return tuple(dimensions)
