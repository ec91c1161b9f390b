"""The bodies of KServe's inference requests and responses: JSON, and raw tensors after it.

Clients that send raw tensors send the same JSON head repeatedly and receive the same one back, so
parsed and encoded heads are cached.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import msgspec
import numpy as np

from sojourn.service import datatypes
from sojourn.service.failures import invalid
from sojourn.service.http import json_arrays
from sojourn.service.http.messages import Response
from sojourn.service.inference import Answer, check_parameters, keep_alive_of

HEADER_LENGTH = "Inference-Header-Content-Length"
_REMEMBERED = 256  # cached heads
_LONGEST_REMEMBERED = 4096  # bytes of a cached head
_NOTHING = memoryview(b"")
_LONGEST_TIMEOUT = 10**12  # microseconds; a longer timeout counts as none


class _Input(msgspec.Struct, gc=False):
    name: str
    shape: list[int]
    datatype: str
    parameters: dict[str, Any] | None = None
    data: msgspec.Raw = msgspec.Raw()


class _Output(msgspec.Struct, gc=False):
    name: str
    parameters: dict[str, Any] | None = None


class _Body(msgspec.Struct, gc=False):
    inputs: list[_Input]
    id: str | None = None  # some clients send null
    parameters: dict[str, Any] | None = None
    outputs: list[_Output] | None = None


_bodies = msgspec.json.Decoder(_Body)


class Asked:
    """The checked content of a request's head."""

    __slots__ = ("_inputs", "_raws", "_wants_raw", "id", "keep_alive", "outputs", "seconds")

    def __init__(self, body: _Body) -> None:
        parameters = body.parameters or {}
        check_parameters(parameters)
        self.id = body.id or ""
        self.outputs = tuple(output.name for output in body.outputs or ()) or None
        self.seconds = _seconds(parameters.get("timeout"))
        self.keep_alive = keep_alive_of(parameters.get("keep_alive"))
        self._wants_raw = _is_true(parameters, "binary_data_output", False)
        self._raws = {
            output.name: _is_raw(output, self._wants_raw) for output in body.outputs or ()
        }
        self._inputs: list[tuple[Any, ...]] = []
        names: set[str] = set()
        for each in body.inputs:
            name = each.name
            dtype = datatypes.dtype_of(each.datatype, name)
            shape = datatypes.checked_shape(each.shape, name)
            size = _size(each)
            # Raw numbers with the same layout as in memory.
            is_plain = dtype.kind in "iuf" and size == math.prod(shape) * dtype.itemsize != 0
            self._inputs.append((name, each.datatype, dtype, shape, size, is_plain, each.data))
            if name in names:
                raise invalid(f"input {name!r} is given twice")
            names.add(name)

    def is_raw(self, output: str) -> bool:
        """Whether this output is sent raw, after the JSON."""
        return self._raws.get(output, self._wants_raw)

    @property
    def has_data(self) -> bool:
        """Whether the head itself contains an input's data."""
        return any(size is None for *_, size, _, _ in self._inputs)

    def arrays(self, raw: memoryview) -> dict[str, np.ndarray]:
        """The inputs; those that are not in the head are in `raw`, one after the other."""
        arrays: dict[str, np.ndarray] = {}
        at = 0
        for name, datatype, dtype, shape, size, is_plain, data in self._inputs:
            if size is None:
                arrays[name] = json_arrays.from_data(data, dtype, shape, name)
                continue
            end = at + size
            if end > len(raw):
                raise invalid(f"input {name!r}: the body does not have {size} more bytes")
            if is_plain:
                arrays[name] = np.ndarray(shape, dtype, raw, at)
            else:
                arrays[name] = datatypes.from_raw(raw[at:end], datatype, shape, name)
            at = end
        if at != len(raw):
            raise invalid(f"{len(raw) - at} bytes behind the inputs belong to none of them")
        return arrays


_asked_before: dict[bytes, Asked] = {}


def in_json(body: bytes) -> tuple[Asked, memoryview]:
    """Read a request that is all JSON; no raw bytes follow."""
    return Asked(_parsed(body)), _NOTHING


def in_bytes(body: bytes, header_length: str) -> tuple[Asked, memoryview]:
    """Read a request with raw tensors after its head; returns the head and the raw bytes."""
    if not (header_length.isascii() and header_length.isdigit() and len(header_length) < 19):
        raise invalid(f"{HEADER_LENGTH} must be between 0 and the length of the body")
    length = int(header_length)
    if length > len(body):
        raise invalid(f"{HEADER_LENGTH} must be between 0 and the length of the body")
    head = body[:length]
    asked = _asked_before.get(head)
    if asked is None:
        asked = Asked(_parsed(head))
        if length <= _LONGEST_REMEMBERED and not asked.id and not asked.has_data:
            if len(_asked_before) >= _REMEMBERED:
                _asked_before.clear()
            _asked_before[head] = asked
    return asked, memoryview(body)[length:]


def _parsed(text: bytes) -> _Body:
    try:
        return _bodies.decode(text)
    except msgspec.ValidationError as error:
        raise invalid(f"the request: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if b"NaN" in text or b"Infinity" in text:
            return _with_special_numbers(text)
        json_arrays.refuse_json(error)


def _with_special_numbers(text: bytes) -> _Body:
    """Read a body with NaN or Infinity, which standard JSON lacks but other servers accept."""
    values = json_arrays.parsed(text)
    try:
        arrays = [each.pop("data", None) for each in values["inputs"]]
        body = msgspec.convert(values, _Body)
    except (msgspec.ValidationError, AttributeError, KeyError, TypeError) as error:
        raise invalid(f"the request: {error}") from None
    for each, data in zip(body.inputs, arrays, strict=True):
        each.data = msgspec.Raw() if data is None else cast(msgspec.Raw, json_arrays.Parsed(data))
    return body


def _seconds(timeout: Any) -> float | None:
    """Convert the client's timeout from microseconds to seconds."""
    if timeout is None or timeout == 0:
        return None
    if type(timeout) is not int or timeout < 0:
        raise invalid("timeout must be a number of microseconds")
    return timeout / 1e6 if timeout < _LONGEST_TIMEOUT else None


def _size(given: _Input) -> int | None:
    size = None
    if given.parameters is not None:
        check_parameters(given.parameters, f"input {given.name!r}")
        size = given.parameters.get("binary_data_size")
    if size is None and not given.data:
        raise invalid(f"input {given.name!r} has no data")
    if size is not None and (type(size) is not int or size < 0):
        raise invalid(f"input {given.name!r}: binary_data_size must be a number of bytes")
    return size


def _is_raw(output: _Output, default: bool) -> bool:
    parameters = output.parameters or {}
    check_parameters(parameters, f"output {output.name!r}")
    return _is_true(parameters, "binary_data", default)


def _is_true(parameters: dict[str, Any], name: str, default: bool) -> bool:
    value = parameters.get(name, default)
    if type(value) is not bool:
        raise invalid(f"{name} must be true or false")
    return value


RAW = Asked(_Body([], parameters={"binary_data_output": True}))  # for a request without a head


# -- responses -----------------------------------------------------------------------------------

_heads_before: dict[Any, tuple[bytes, dict[str, str]]] = {}


def response(answer: Answer, asked: Asked) -> Response:
    """Return the response with each output in the form that the client asked for."""
    outputs = answer.outputs
    pieces: dict[str, bytes] = {}
    key: list[Any] = [answer.model, answer.version]
    for name, array in outputs.items():
        if asked.is_raw(name):
            pieces[name] = raw = datatypes.to_raw(array)
            key.append((name, array.dtype, array.shape, len(raw)))
    if not pieces:
        return Response(200, _head(answer, outputs, asked, pieces))
    if asked.id or len(pieces) != len(outputs):
        head, told = _head_before(_head(answer, outputs, asked, pieces))
    else:
        known = _heads_before.get(tuple(key))
        if known is None:
            if len(_heads_before) >= _REMEMBERED:
                _heads_before.clear()
            known = _head_before(_head(answer, outputs, asked, pieces))
            _heads_before[tuple(key)] = known
        head, told = known
    return Response(200, b"".join((head, *pieces.values())), "application/octet-stream", told)


def _head_before(head: bytes) -> tuple[bytes, dict[str, str]]:
    """A head that raw tensors follow, and the HTTP header that says where they begin."""
    return head, {HEADER_LENGTH: str(len(head))}


def _head(
    answer: Answer, outputs: Mapping[str, np.ndarray], asked: Asked, pieces: dict[str, bytes]
) -> bytes:
    entries: list[dict[str, Any]] = []
    is_plain = True
    for name, array in outputs.items():
        entry: dict[str, Any] = {
            "name": name,
            "datatype": datatypes.datatype_of(array, name),
            "shape": array.shape,
        }
        if name in pieces:
            entry["parameters"] = {"binary_data_size": len(pieces[name])}
        else:
            is_plain = is_plain and json_arrays.is_plain(array)
            entry["data"] = json_arrays.listed(array.reshape(-1))
        entries.append(entry)
    head: dict[str, Any] = {"model_name": answer.model, "model_version": str(answer.version)}
    if asked.id:
        head["id"] = asked.id
    head["outputs"] = entries
    return json_arrays.encoded(head, is_plain)
