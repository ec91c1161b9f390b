"""The element types of the KServe protocol, and how its raw bytes become arrays and back."""

from __future__ import annotations

import base64
import functools
import math
from collections.abc import Sequence

import ml_dtypes
import numpy as np

from sojourn.service.failures import Refused, Status, invalid

BYTES = "BYTES"
DTYPES: dict[str, np.dtype] = {
    "BOOL": np.dtype(bool),
    **{f"UINT{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    **{f"INT{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
    "BF16": np.dtype(ml_dtypes.bfloat16),
    BYTES: np.dtype(object),
}
_DATATYPES = {dtype: datatype for datatype, dtype in DTYPES.items()}
_DATATYPES_BY_NAME = {dtype.name: datatype for dtype, datatype in _DATATYPES.items()}
_DATATYPES_BY_NAME["string"] = BYTES
MOST_DIMENSIONS = 32  # numpy's limit before version 2
_MOST_ELEMENTS = 2**48  # more than any memory holds, and numpy can still count them


def dtype_of(datatype: str, name: str) -> np.dtype:
    """Return the dtype of the input `name`."""
    try:
        return DTYPES[datatype]
    except KeyError:
        raise invalid(f"input {name!r}: unknown datatype {datatype[:40]!r}") from None


def datatype_of(array: np.ndarray, name: str) -> str:
    """Return the datatype of the output `name`."""
    datatype = _DATATYPES.get(array.dtype)
    if datatype is None:
        if array.dtype.kind in "SU":
            return BYTES
        raise Refused(
            Status.FAILED_PRECONDITION,
            f"output {name!r} is {array.dtype}, which this protocol does not have",
        )
    return datatype


def datatype_named(dtype: str) -> str:
    """Return the datatype of a dtype such as `"float32"`; a dtype that the protocol lacks keeps its
    name."""
    return _DATATYPES_BY_NAME.get(dtype, dtype.upper())


def dimensions(shape: Sequence[int | None] | None) -> list[int]:
    """Return a shape as the protocol writes it, with -1 for an unknown dimension. The protocol
    cannot express an unknown rank, so that becomes one unknown dimension."""
    return [-1] if shape is None else [-1 if dim is None else dim for dim in shape]


def checked_shape(shape: Sequence[int], name: str) -> tuple[int, ...]:
    """Return the shape as a tuple, or refuse it if no array can have it."""
    # A shape with too many dimensions is not checked further and must not enter the cache.
    if len(shape) > MOST_DIMENSIONS or not _is_possible(known := tuple(shape)):
        raise invalid(f"input {name!r}: no array has the shape {list(shape[:10])}")
    return known


@functools.lru_cache(256)
def _is_possible(shape: tuple[int, ...]) -> bool:
    elements = math.prod(max(dim, 1) for dim in shape)
    return all(dim >= 0 for dim in shape) and elements <= _MOST_ELEMENTS


def from_raw(
    raw: bytes | memoryview, datatype: str, shape: tuple[int, ...], name: str
) -> np.ndarray:
    """Return an array that is a view of these little-endian bytes."""
    dtype = dtype_of(datatype, name)
    count = math.prod(shape)
    if datatype == BYTES:
        return strings_from_raw(raw, count, name).reshape(shape)
    if len(raw) != count * dtype.itemsize:
        raise invalid(
            f"input {name!r}: {datatype} {list(shape)} has {count * dtype.itemsize} bytes, "
            f"got {len(raw)}"
        )
    return on_bytes(raw, dtype, name).reshape(shape)


def on_bytes(raw: bytes | memoryview, dtype: np.dtype, name: str) -> np.ndarray:
    """Return an array that is a view of these bytes."""
    if dtype.kind == "b" and len(raw) and np.frombuffer(raw, np.uint8).max() > 1:
        raise invalid(f"input {name!r}: a boolean must be a byte of 0 or 1")
    return np.frombuffer(raw, dtype)


def strings_from_raw(raw: bytes | memoryview, count: int, name: str) -> np.ndarray:
    """Return the strings of the raw format, in which a length precedes each string."""
    view = memoryview(raw)
    if count * 4 > len(view):  # before anything is allocated
        raise invalid(f"input {name!r}: {count} strings do not fit into {len(view)} bytes")
    found = np.empty(count, object)
    at = 0
    for i in range(count):
        end = at + 4
        length = int.from_bytes(view[at:end], "little")
        at = end + length
        if end > len(view) or at > len(view):
            raise invalid(f"input {name!r}: string {i} reaches beyond the data")
        found[i] = bytes(view[end:at])
    if at != len(view):
        raise invalid(f"input {name!r}: {len(view) - at} bytes too many")
    return found


def to_raw(array: np.ndarray) -> bytes:
    """Return the array's elements as little-endian bytes."""
    if array.dtype.kind in "OSU":
        return b"".join(
            len(item).to_bytes(4, "little") + item
            for item in map(as_bytes, array.reshape(-1).tolist())
        )
    return array.tobytes()


def as_bytes(item: object) -> bytes:
    """Return one string element of an array as bytes."""
    return item if isinstance(item, bytes) else str(item).encode()


def from_base64(encoded: str) -> bytes:
    """Decode base64 as leniently as other servers: with line breaks, and without padding, too."""
    text = "".join(encoded.split()).rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        raise ValueError("what is given as b64 is not base64") from None
