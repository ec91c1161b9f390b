"""What a model is tried with, made from its signature. Pure, and the same each time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from sojourn.errors import ModelError
from sojourn.values import Signature, TensorSpec
from sojourn.values.dtypes import BY_NAME

Feeds = Mapping[str, np.ndarray]

BATCHES = (1, 3, 16)
LARGE_BATCH = 64  # once, where that takes little memory
_MOST_OF_LARGE = 2**18  # elements
_OTHER = 16  # for a dimension that may have any size and is not the first
_MOST_ELEMENTS = 2**26
# Standard normal, between 0 and 1, and pixels; for integers, what small tables can be asked for.
_RANGES = ("normal", "unit", "byte")


def generated(signature: Signature) -> Iterator[tuple[int, Feeds]]:
    """Batch sizes and feeds for them; a model without a free first dimension has one size."""
    specs = signature.inputs
    for name, spec in specs.items():
        if spec.shape is None or spec.dtype not in BY_NAME:
            raise ModelError(f"inputs cannot be made for {name!r}, {spec}: give samples=")
    is_free = any(spec.shape and spec.shape[0] is None for spec in specs.values())
    for batch in BATCHES if is_free else BATCHES[:1]:
        for number, values in enumerate(_RANGES):
            yield batch, made(signature, batch, [batch, number], values)
    if is_free and sum(_size(spec, LARGE_BATCH) for spec in specs.values()) <= _MOST_OF_LARGE:
        yield LARGE_BATCH, made(signature, LARGE_BATCH, LARGE_BATCH)


def made(
    signature: Signature, batch: int, seed: int | Sequence[int], values: str = "normal"
) -> Feeds:
    """Inputs of so many rows, always the same for a seed."""
    draw = np.random.default_rng(seed)
    return {name: _array(spec, batch, values, draw) for name, spec in signature.inputs.items()}


def batch_of(feeds: Feeds) -> int:
    """The size of the batch in feeds that the user gave."""
    return next((len(array) for array in map(np.asarray, feeds.values()) if array.ndim), 1)


def _shape(spec: TensorSpec, batch: int) -> tuple[int, ...]:
    assert spec.shape is not None
    return tuple(
        dim if dim is not None else batch if axis == 0 else _OTHER
        for axis, dim in enumerate(spec.shape)
    )


def _size(spec: TensorSpec, batch: int) -> float:
    return float(np.prod(_shape(spec, batch), dtype=float))


def _array(spec: TensorSpec, batch: int, values: str, draw: np.random.Generator) -> np.ndarray:
    shape = _shape(spec, batch)
    if _size(spec, batch) > _MOST_ELEMENTS:
        raise ModelError(f"inputs of {shape} are too large to be made: give samples=")
    dtype = BY_NAME[spec.dtype]
    if dtype.kind == "b":
        return draw.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        return draw.integers(0, {"normal": 2, "unit": 10, "byte": 100}[values], shape).astype(dtype)
    if dtype.kind != "f":
        raise ModelError(f"inputs of {spec.dtype} cannot be made: give samples=")
    if values == "normal":
        return draw.normal(size=shape).astype(dtype)
    return (draw.random(shape) * (1 if values == "unit" else 255)).astype(dtype)
