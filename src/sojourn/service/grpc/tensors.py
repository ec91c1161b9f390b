"""Conversion of TensorFlow's TensorProto to an array, and back.

Elements are raw bytes (`tensor_content`) or values in a field of their type (`float_val`, ...). If
there are fewer values than the shape needs, the last one fills up the rest, as in TensorFlow. That
takes memory for bytes that the client never sent, so a request is checked before it is filled up.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from sojourn.service.datatypes import as_bytes, checked_shape, on_bytes
from sojourn.service.failures import Refused, Status, invalid
from sojourn.service.grpc.elements import as_strings, narrowed
from sojourn.service.grpc.messages import TENSORS
from sojourn.values.dtypes import BY_NAME

MOST_FILLED_BYTES = 256 * 2**20  # of a filled-up tensor: no more than a request could carry
STRING = 7


@dataclass(frozen=True, slots=True)
class _Type:
    dtype: np.dtype
    field: str  # name of the field of its values
    stored: np.dtype  # of an element of that field
    tag: bytes = b""  # of that field, if it has the same layout in a message as in memory


def _types() -> dict[int, _Type]:
    whole = ("int_val", np.dtype(np.int32))
    fields: dict[str, tuple[str, np.dtype] | tuple[str, np.dtype, bytes]] = {
        "DT_FLOAT": ("float_val", np.dtype(np.float32), b"\x2a"),
        "DT_DOUBLE": ("double_val", np.dtype(np.float64), b"\x32"),
        "DT_COMPLEX64": ("scomplex_val", np.dtype(np.float32), b"\x4a"),
        "DT_COMPLEX128": ("dcomplex_val", np.dtype(np.float64), b"\x62"),
        "DT_HALF": ("half_val", np.dtype(np.int32)),
        "DT_BFLOAT16": ("half_val", np.dtype(np.int32)),
        "DT_BOOL": ("bool_val", np.dtype(bool)),
        "DT_INT64": ("int64_val", np.dtype(np.int64)),
        "DT_UINT32": ("uint32_val", np.dtype(np.uint32)),
        "DT_UINT64": ("uint64_val", np.dtype(np.uint64)),
    }
    others = {"float": "float32", "double": "float64", "half": "float16"}
    found = {}
    for value in TENSORS.descriptor.enum_types_by_name["DataType"].values:
        name = value.name.removeprefix("DT_").lower()
        dtype = BY_NAME.get(others.get(name, name))
        if dtype is not None:
            in_bytes = ("float8_val", np.dtype(np.uint8))
            found[value.number] = _Type(
                dtype, *(in_bytes if name.startswith("float8") else fields.get(value.name, whole))
            )
    return found


_TYPES = _types()
_NUMBERS = {kind.dtype: number for number, kind in _TYPES.items()}


def number_of(dtype: str) -> int:
    """TensorFlow's number of the dtype that a signature names; 0 for any dtype."""
    if dtype == "string":
        return STRING
    known = BY_NAME.get(dtype)
    return 0 if known is None else _NUMBERS.get(known, 0)


def to_array(proto: Any, name: str, short: dict[str, int] | None = None) -> np.ndarray:
    """Convert an input to an array, which may share the message's own bytes.

    With `short`, an array that must be filled up is noted there, with the bytes that it will have.
    It has no memory yet: only its dtype and shape are right.
    """
    shape = checked_shape([dim.size for dim in proto.tensor_shape.dim], name)
    if proto.tensor_shape.unknown_rank:
        raise invalid(f"input {name!r}: the shape of an input must be known")
    if proto.dtype == STRING:
        return _filled(_strings(proto, shape, name), shape, name, short)
    kind = _TYPES.get(proto.dtype)
    if kind is None:
        raise invalid(f"input {name!r}: type {proto.dtype} cannot be an input")
    content = proto.tensor_content
    if content:
        wanted = prod(shape) * kind.dtype.itemsize
        if len(content) != wanted:
            raise invalid(
                f"input {name!r}: {kind.dtype} of shape {list(shape)} takes {wanted} bytes, "
                f"and {len(content)} came"
            )
        return on_bytes(content, kind.dtype, name).reshape(shape)
    return _filled(_elements(proto, kind, name), shape, name, short)


def _elements(proto: Any, kind: _Type, name: str) -> np.ndarray:
    values = getattr(proto, kind.field)
    if kind.field == "float8_val":
        return np.frombuffer(values, kind.dtype)
    stored = np.array(values, kind.stored)
    if kind.dtype == kind.stored:
        return stored
    if kind.dtype.kind == "c":
        if stored.size % 2:
            raise invalid(f"input {name!r}: complex numbers come in two parts each")
        return stored.view(kind.dtype)
    if kind.field == "half_val":
        return narrowed(stored, np.dtype(np.uint16), name).view(kind.dtype)
    if kind.dtype.names:  # quantized: a record with one number
        return narrowed(stored, kind.dtype[0], name).view(kind.dtype)
    return narrowed(stored, kind.dtype, name)


def _filled(
    elements: np.ndarray, shape: tuple[int, ...], name: str, short: dict[str, int] | None
) -> np.ndarray:
    count = prod(shape)
    if len(elements) == count:
        return elements.reshape(shape)
    is_text = elements.dtype.kind == "O"
    if len(elements) > count:
        kind = "strings" if is_text else "values"
        raise invalid(
            f"input {name!r}: shape {list(shape)} takes {count} {kind}, and {len(elements)} came"
        )
    last: Any = elements[-1] if len(elements) else b"" if is_text else 0
    size = count * elements.dtype.itemsize
    if is_text:  # the filled elements share one object here, but the worker gets a copy of each
        size += (count - len(elements)) * len(last)
    if size > MOST_FILLED_BYTES:
        raise invalid(f"input {name!r}: shape {list(shape)} is too large to be filled up")
    if short is not None:
        short[name] = size
        return np.broadcast_to(np.zeros((), elements.dtype), shape)
    whole = np.zeros(count, elements.dtype)
    whole[: len(elements)] = elements
    whole[len(elements) :] = last
    return whole.reshape(shape)


def _strings(proto: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    if proto.tensor_content:
        values = _split(proto.tensor_content, prod(shape), name)
    else:
        values = list(proto.string_val)
    return as_strings(values, (len(values),), name)


def _split(content: bytes, count: int, name: str) -> list[bytes]:
    """Split packed strings: all their lengths as varints, then all their bytes."""
    lengths, at = [], 0
    for _ in range(min(count, len(content))):
        length = shift = 0
        while at < len(content) and shift < 35:
            byte = content[at]
            length |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                lengths.append(length)
                break
    if len(lengths) != count or at + sum(lengths) != len(content):
        raise invalid(f"input {name!r}: its {len(content)} bytes are not {count} strings")
    values = []
    for length in lengths:
        values.append(content[at : at + length])
        at += length
    return values


def from_array(array: np.ndarray, proto: Any, name: str) -> None:
    """Write an array into a message, in the field of its type, which clients read."""
    for size in array.shape:
        proto.tensor_shape.dim.add().size = size
    if array.dtype.kind in "OSU":
        proto.dtype = STRING
        proto.string_val.extend(map(as_bytes, array.reshape(-1).tolist()))
        return
    number = _NUMBERS.get(array.dtype)
    if number is None:
        raise Refused(Status.UNIMPLEMENTED, f"output {name!r}: {array.dtype} cannot be sent")
    kind = _TYPES[number]
    if kind.field == "float8_val":  # TensorFlow's clients do not read all of these types there
        proto.tensor_content = array.tobytes()
    elif kind.tag:
        raw = array.tobytes()
        proto.MergeFromString(kind.tag + _varint(len(raw)) + raw)
    else:
        flat = np.ascontiguousarray(array).reshape(-1)
        if kind.field == "half_val":
            flat = flat.view(np.uint16)
        elif kind.dtype.names:
            flat = flat.view(kind.dtype[0])
        elif flat.dtype.kind == "V":  # int4 and similar types
            flat = flat.astype(np.int32)
        getattr(proto, kind.field).extend(flat.tolist())
    proto.dtype = number


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(0x80 | value & 0x7F)
        value >>= 7
    return bytes([*parts, value])
