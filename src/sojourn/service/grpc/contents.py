"""Conversion of a KServe message's tensors to arrays and back: raw bytes, or fields by type."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from sojourn.service import datatypes
from sojourn.service.datatypes import BYTES
from sojourn.service.failures import invalid
from sojourn.service.grpc.elements import as_strings, narrowed

# The field of each datatype, and its element type. FP16 and BF16 have no field: they are sent raw.
_FIELDS: dict[str, tuple[str, type]] = {
    "BOOL": ("bool_contents", np.bool_),
    **dict.fromkeys(("INT8", "INT16", "INT32"), ("int_contents", np.int32)),
    "INT64": ("int64_contents", np.int64),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), ("uint_contents", np.uint32)),
    "UINT64": ("uint64_contents", np.uint64),
    "FP32": ("fp32_contents", np.float32),
    "FP64": ("fp64_contents", np.float64),
    BYTES: ("bytes_contents", np.object_),
}


def inputs_of(request: Any) -> dict[str, np.ndarray]:
    """The input arrays of a request, by name."""
    raw, tensors = request.raw_input_contents, request.inputs
    if raw and len(raw) != len(tensors):
        raise invalid(f"{len(tensors)} inputs and {len(raw)} raw contents: each must have its own")
    found: dict[str, np.ndarray] = {}
    for index, tensor in enumerate(tensors):
        name = tensor.name
        if name in found:
            raise invalid(f"input {name!r} is there twice")
        if not raw:
            found[name] = _typed(tensor)
        elif tensor.HasField("contents"):
            raise invalid(f"input {name!r} has contents, and there are raw ones")
        else:
            shape = datatypes.checked_shape(tensor.shape, name)
            found[name] = datatypes.from_raw(raw[index], tensor.datatype, shape, name)
    return found


def _typed(tensor: Any) -> np.ndarray:
    name, datatype = tensor.name, tensor.datatype
    dtype = datatypes.dtype_of(datatype, name)
    shape = datatypes.checked_shape(tensor.shape, name)
    if datatype not in _FIELDS:
        raise invalid(f"input {name!r}: {datatype} must be sent in raw_input_contents")
    field, stored = _FIELDS[datatype]
    for other, _ in tensor.contents.ListFields():
        if other.name != field:
            raise invalid(f"input {name!r}: {datatype} must be in {field}, not in {other.name}")
    values = getattr(tensor.contents, field)
    if datatype == BYTES:
        return as_strings(list(values), shape, name)
    count = prod(shape)
    if len(values) != count:
        raise invalid(
            f"input {name!r}: shape {list(shape)} takes {count} values, and {len(values)} came"
        )
    return narrowed(np.array(values, stored), dtype, name).reshape(shape)


def put_outputs(outputs: Mapping[str, np.ndarray], response: Any, *, raw: bool) -> None:
    """Write the outputs; all raw if `raw` is set or if some output's datatype has no field."""
    names = {name: datatypes.datatype_of(array, name) for name, array in outputs.items()}
    raw = raw or not _FIELDS.keys() >= set(names.values())
    for name, array in outputs.items():
        tensor = response.outputs.add(name=name, datatype=names[name], shape=array.shape)
        if raw:
            response.raw_output_contents.append(datatypes.to_raw(array))
        else:
            _put_typed(array, getattr(tensor.contents, _FIELDS[names[name]][0]))


def _put_typed(array: np.ndarray, field: Any) -> None:
    flat = array.reshape(-1).tolist()
    field.extend(map(datatypes.as_bytes, flat) if array.dtype.kind in "OSU" else flat)
