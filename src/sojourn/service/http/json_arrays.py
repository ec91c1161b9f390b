"""Conversion of the numbers and strings of JSON bodies to arrays, and of arrays to JSON."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import dataclass
from typing import Any, NoReturn

import msgspec
import numpy as np

from sojourn.service.datatypes import MOST_DIMENSIONS, from_base64
from sojourn.service.failures import Refused, Status, invalid
from sojourn.service.http.json_numbers import fractions

_integers = msgspec.json.Decoder(list[int])
_anything = msgspec.json.Decoder(Any)
_NOT_AN_ARRAY = "the lists are ragged, or nested too deeply"


@dataclass(slots=True)
class Parsed:
    """A part of a body that is parsed already, because the body has NaN or Infinity."""

    value: Any


def parsed(body: bytes | msgspec.Raw | Parsed) -> Any:
    """Parse a body. NaN and Infinity are numbers, as in TensorFlow Serving."""
    if isinstance(body, Parsed):
        return body.value
    try:
        return _anything.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _lenient(bytes(body), error)


def _lenient(body: bytes, error: Exception) -> Any:
    if b"NaN" not in body and b"Infinity" not in body:
        refuse_json(error)
    try:
        values = json.loads(body)
        if b"\\u" in body:  # raises for lone surrogates, which no answer could contain
            json.dumps(values, ensure_ascii=False).encode()
        return values
    except (ValueError, RecursionError) as second:
        refuse_json(second)


def refuse_json(error: Exception) -> NoReturn:
    """Raise the error for a body that is not JSON."""
    why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    raise invalid(f"JSON Parse Error: {why}") from None


def from_data(
    data: msgspec.Raw | Parsed, dtype: np.dtype, shape: tuple[int, ...], name: str
) -> np.ndarray:
    """Build the array of this shape from its elements, listed flat or in nested lists."""
    if not isinstance(data, Parsed):
        if dtype.kind == "f":
            array = fractions(data, dtype, 1)
            if array is not None:
                return shaped(array, shape, name)
        elif dtype.kind in "iu":
            try:
                return shaped(as_array(_integers.decode(data), dtype, name), shape, name)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                pass  # nested lists, or not integers
    values = parsed(data)
    return shaped(as_array(values, dtype, name), shape, name)


def shaped(array: np.ndarray, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Return the array in the declared shape; its elements may be listed flat."""
    if array.shape == shape:
        return array
    if array.ndim > 1 or array.size != math.prod(shape):
        raise invalid(
            f"input {name!r}: the data has the shape {list(array.shape)}, not {list(shape)}",
        )
    return array.reshape(shape)


def as_array(values: Any, dtype: np.dtype, name: str) -> np.ndarray:
    """Convert nested lists to an array of this dtype; elements change by rounding only."""
    try:
        if dtype.kind == "O":
            return _strings(values)
        array = _asarray(values)
        if not array.size:
            return array.astype(dtype)
        types = _types(values)
        if array.dtype.kind == "O" and types <= {int, float}:  # integers beyond 64 bits
            array = np.asarray(values, np.float64)
        if dtype.kind in "iu" and types == {int}:
            # Raises if an integer does not fit.
            return array if array.dtype == dtype else np.asarray(values, dtype)
        if dtype.kind != "b" and bool in types:
            raise ValueError(f"booleans where {dtype} is expected")
        if array.dtype.kind not in _TAKEN_FROM[dtype.kind]:
            raise ValueError(f"{_kind(array)} where {dtype} is expected")
        if array.dtype == dtype:
            return array
        with np.errstate(over="raise"):
            return array.astype(dtype)
    except (FloatingPointError, OverflowError):
        raise invalid(f"input {name!r}: a number does not fit into {dtype}") from None
    except (ValueError, TypeError) as error:
        raise invalid(f"input {name!r}: {error}") from None


def as_anything(values: Any, name: str) -> np.ndarray:
    """Convert nested lists to an array of the dtype that their elements imply."""
    try:
        array = _asarray(values)
        return _strings(values) if array.dtype.kind in "OUS" else array
    except (ValueError, TypeError, OverflowError) as error:
        raise invalid(f"input {name!r}: {error}") from None


def _asarray(values: Any) -> np.ndarray:
    try:
        return np.asarray(values)
    except ValueError:
        raise ValueError(_NOT_AN_ARRAY) from None


def _types(values: Any) -> set[type]:
    """The types of all elements of nested lists. numpy hides some of them: it converts true to 1,
    and large integers to floating point."""
    if not isinstance(values, list):
        return {type(values)}
    if values and isinstance(values[0], list):
        return set().union(*map(_types, values))
    return set(map(type, values))


_TAKEN_FROM = {"b": "b", "i": "", "u": "", "f": "iuf", "V": "iuf", "c": "iufc"}


def _kind(array: np.ndarray) -> str:
    kinds = {"b": "booleans", "i": "integers", "u": "integers", "f": "fractions", "U": "strings"}
    return kinds.get(array.dtype.kind, "mixed or ragged values")


def _strings(values: Any) -> np.ndarray:
    """Convert strings and {"b64": ...} objects to an array of bytes."""
    shape: list[int] = []
    inner = values
    while isinstance(inner, list):
        if len(shape) == MOST_DIMENSIONS:
            raise ValueError(_NOT_AN_ARRAY)
        shape.append(len(inner))
        if not inner:
            break
        inner = inner[0]
    flat: list[bytes] = []
    _collect(values, shape, 0, flat)
    array = np.empty(len(flat), object)
    array[:] = flat
    return array.reshape(shape)


def _collect(values: Any, shape: list[int], depth: int, flat: list[bytes]) -> None:
    if depth == len(shape):
        flat.append(element(values))
        return
    if not isinstance(values, list) or len(values) != shape[depth]:
        raise ValueError("the lists are ragged")
    for value in values:
        _collect(value, shape, depth + 1, flat)


def element(value: Any) -> bytes:
    """Return one string as bytes; it is given as text, or as base64."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str):
        return from_base64(value["b64"])
    shown = type(value).__name__ if isinstance(value, (list, dict)) else json.dumps(value)
    raise ValueError(f"a string is expected, not {shown}")


def listed(array: np.ndarray, *, as_base64: bool = False) -> Any:
    """Convert the array to nested lists that JSON can hold. Strings become text or, if they are not
    UTF-8 or `as_base64` is set, {"b64": ...}."""
    kind = array.dtype.kind
    if kind in "OSU":
        return _listed_strings(array.tolist(), as_base64)
    if kind == "c":
        raise Refused(Status.FAILED_PRECONDITION, f"JSON has no {array.dtype}, which is an output")
    return _plain_numbers(array).tolist()


def _plain_numbers(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind != "V":
        return array
    if array.dtype.names:  # quantized: a record with one number
        return np.asarray(array[array.dtype.names[0]])
    return array.astype(np.float32)  # bfloat16 and similar types


def _listed_strings(value: Any, as_base64: bool) -> Any:
    if isinstance(value, list):
        return [_listed_strings(each, as_base64) for each in value]
    raw = value if isinstance(value, bytes) else str(value).encode()
    if not as_base64:
        try:
            return raw.decode()
        except UnicodeDecodeError:  # replacement characters would change the bytes
            pass
    return {"b64": base64.b64encode(raw).decode()}


def is_plain(array: np.ndarray) -> bool:
    """Whether standard JSON, which has no NaN or infinity, can hold the array."""
    array = _plain_numbers(array)
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def encoded(value: Any, is_plain: bool) -> bytes:
    """Encode `value` as JSON; NaN and Infinity, if any, are written by these names."""
    if is_plain:
        return msgspec.json.encode(value)
    return json.dumps(value, separators=(",", ":")).encode()
