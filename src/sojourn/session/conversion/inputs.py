"""Generate the inputs that a model is tried with from its signature. Pure and deterministic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from sojourn.errors import ModelError
from sojourn.values import Signature, TensorSpec
from sojourn.values.dtypes import BY_NAME

Feeds = Mapping[str, np.ndarray]

BATCHES = (1, 3, 16)
LARGE_BATCH = 64  # tried once, if it takes little memory
MANY_ROWS = 1024  # tried if it also takes little time: with so many rows a second core may pay
_MOST_OF_LARGE = {LARGE_BATCH: 2**18, MANY_ROWS: 2**20}  # batch -> most elements of all inputs
_OTHER = {3: 21}  # batch -> size of free dimensions other than the first
_USUAL_OTHER = 16  # for all other batches
_MOST_ELEMENTS = 2**26  # of one input
# Floats: standard normal, between 0 and 1, and pixels; integers: valid indices of small tables.
_RANGES = ("normal", "unit", "byte")
# Values for which engines differ: ties, halves and zeros; large magnitudes of either sign, and tiny
# ones; integers below zero. Floats and integers in separate cases: a model that refuses such
# integers (as indices) is still tried with such floats. For one batch size. No large integers:
# models may make arrays of such sizes.
_EDGES = (
    *(("edges", "unit"), ("large", "unit"), ("tiny", "unit"), ("zero", "unit")),
    ("normal", "edges"),
)
_EDGES_AT = 3
_HALVES = (*(np.arange(-8, 9) / 2), -0.0)
NOT_FINITE = ((np.nan,), (np.inf, -np.inf), (np.nan, np.inf, 0.0, -np.inf))
# Unusually large magnitudes, in steps: if an engine differs at one, smaller ones are still
# accepted. Near the largest float, a square root computed by its reciprocal is too large by half.
# There each row gets only one such value: whether a sum of several overflows depends on the order
# in which they are added.
HUGE = tuple(float(np.float32(size)) for size in (1e4, 1e8, 1e16, 1e30, 3.4e38))
_SCALES = {"normal": 1.0, "large": 100.0, "tiny": 1e-6, "zero": 0.0}


def generated(signature: Signature) -> Iterator[tuple[int, Feeds]]:
    """Yield batch sizes and feeds; models without a free first dimension have only one size."""
    specs = signature.inputs
    for name, spec in specs.items():
        if spec.shape is None or spec.dtype not in BY_NAME:
            raise ModelError(f"inputs cannot be made for {name!r}, {spec}: give samples=")
    is_free = any(spec.shape and spec.shape[0] is None for spec in specs.values())
    batches = BATCHES if is_free else BATCHES[:1]
    for batch in batches:
        for number, values in enumerate(_RANGES):
            yield batch, made(signature, batch, [batch, number], values)
    batch = _EDGES_AT if is_free else batches[0]
    for number, (floats, integers) in enumerate(_EDGES):
        kinds = {BY_NAME[spec.dtype].kind for spec in specs.values()}
        if kinds & set("f" if integers == "unit" else "iu"):
            yield batch, made(signature, batch, [batch, 10 + number], floats, integers)
    for batch, most in _MOST_OF_LARGE.items():
        if is_free and sum(_size(spec, batch) for spec in specs.values()) <= most:
            yield batch, made(signature, batch, batch)


def made(
    signature: Signature,
    batch: int,
    seed: int | Sequence[int],
    floats: str = "normal",
    integers: str = "",
) -> Feeds:
    """Make inputs with this number of rows, always the same for a seed. `floats` and `integers`
    name the ranges of values; `integers` defaults to `floats`."""
    draw = np.random.default_rng(seed)
    ranges = floats, integers or floats
    return {name: _array(spec, batch, *ranges, draw) for name, spec in signature.inputs.items()}


def batch_of(feeds: Feeds) -> int:
    """The batch size of given feeds."""
    return next((len(array) for array in map(np.asarray, feeds.values()) if array.ndim), 1)


def _shape(spec: TensorSpec, batch: int) -> tuple[int, ...]:
    assert spec.shape is not None
    return tuple(
        dim if dim is not None else batch if axis == 0 else _OTHER.get(batch, _USUAL_OTHER)
        for axis, dim in enumerate(spec.shape)
    )


def _size(spec: TensorSpec, batch: int) -> float:
    return float(np.prod(_shape(spec, batch), dtype=float))


def _array(
    spec: TensorSpec, batch: int, floats: str, integers: str, draw: np.random.Generator
) -> np.ndarray:
    shape = _shape(spec, batch)
    if _size(spec, batch) > _MOST_ELEMENTS:
        raise ModelError(f"inputs of {shape} are too large to be made: give samples=")
    dtype = BY_NAME[spec.dtype]
    if dtype.kind == "b":
        return draw.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        return draw.integers(*_bounds(dtype, integers), shape).astype(dtype)
    if dtype.kind != "f":
        raise ModelError(f"inputs of {spec.dtype} cannot be made: give samples=")
    if floats in _SCALES:
        made = draw.normal(size=shape) * _SCALES[floats]
    elif floats == "edges":
        made = draw.permutation(np.resize(_HALVES, shape).reshape(-1)).reshape(shape)
    else:
        made = draw.random(shape) * (1 if floats == "unit" else 255)
    return made.astype(dtype)


def _bounds(dtype: np.dtype, values: str) -> tuple[int, int]:
    """The range from which integers are drawn."""
    least = -4 if values == "edges" and dtype.kind == "i" else 0
    return least, {"normal": 2, "unit": 10, "byte": 100, "edges": 5}[values]


def spoilt(feeds: Feeds, values: Sequence[float], way: int = 0) -> Feeds:
    """Copy the feeds and put these values among the floats. By `way`: 0 at the same places in all
    inputs; 1 at few places, different for each input; 2 at random places, so that every row is a
    different case; 3 once in each row."""
    draw = np.random.default_rng(way)
    found = {}
    for n, (name, array) in enumerate(feeds.items()):
        array = np.array(array)
        size = array.size
        if array.dtype.kind == "f" and size:
            places = np.arange(0, size, max(3, size // 20))
            if way == 1:
                places = np.arange((n + 1) % max(2, size), size, max(3, size // 2))
            elif way == 2:
                places = np.flatnonzero(draw.random(size) < 0.5)
            elif way == 3 and array.ndim:
                row = size // len(array)
                places = np.arange(0, size, row) + draw.integers(row, size=len(array))
            array.reshape(-1)[places] = np.resize(values, len(places))
        found[name] = array
    return found


def emptied(feeds: Feeds, signature: Signature) -> Iterator[Feeds]:
    """Yield the feeds with no rows, and then with all other free dimensions empty."""
    for is_first in (True, False):
        cuts = {
            name: tuple(
                slice(0) if dim is None and (axis == 0) is is_first else slice(None)
                for axis, dim in enumerate(spec.shape or ())
            )
            for name, spec in signature.inputs.items()
        }
        if any(slice(0) in cut for cut in cuts.values()):
            yield {name: array[cuts[name]] for name, array in feeds.items()}
