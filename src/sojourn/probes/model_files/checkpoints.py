"""The index of a checkpoint: which variables it holds, and how large they are.

The index is a sorted table of blocks (the format of LevelDB); its values are small messages.
The weights themselves are never read.
"""

from __future__ import annotations

from collections.abc import Iterator

from sojourn.errors import ModelError
from sojourn.probes.model_files.summary import Weight
from sojourn.probes.model_files.tensor_specs import dtype_name, parse_shape
from sojourn.probes.model_files.wire import fields, message, number, shown, varint
from sojourn.values import TensorSpec

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_LONGEST_KEY = 1 << 16
_MOST_WEIGHTS = 200_000
# Keys are stored as what differs from the one before: five bytes can make one of 64 KiB.
_MOST_KEY_BYTES = 64 << 20
# Not a variable: how the objects of a Keras or TensorFlow 2 model hang together.
_OBJECT_GRAPH = b"_CHECKPOINTABLE_OBJECT_GRAPH"


def parse_index(data: memoryview) -> tuple[Weight, ...]:
    """The variables that a `.index` file lists."""
    if len(data) < _FOOTER or int.from_bytes(data[-8:], "little") != _MAGIC:
        raise ModelError("damaged: not the index of a checkpoint")
    footer = data[-_FOOTER:]
    _, at = _handle(footer, 0)  # of the table's own metadata
    blocks, _ = _handle(footer, at)
    weights: list[Weight] = []
    covered = key_bytes = 0
    for _, value in _entries(_block(data, *blocks)):
        handle, _ = _handle(value, 0)
        # Blocks do not overlap in an honest file; in another they could make it read for ever.
        covered += handle[1]
        if covered > len(data):
            raise ModelError("damaged: the blocks of the index overlap")
        for name, entry in _entries(_block(data, *handle)):
            key_bytes += len(name)
            if key_bytes > _MOST_KEY_BYTES:
                raise ModelError("damaged: the names in the index are longer than any model's")
            if name not in (b"", _OBJECT_GRAPH):
                weights.append(_weight(name, entry))
            if len(weights) > _MOST_WEIGHTS:
                raise ModelError(f"more than {_MOST_WEIGHTS:,} weights, which no honest model has")
    return tuple(weights)


def _handle(data: memoryview, at: int) -> tuple[tuple[int, int], int]:
    offset, at = varint(data, at)
    size, at = varint(data, at)
    return (offset, size), at


def _block(data: memoryview, offset: int, size: int) -> memoryview:
    if offset + size + 5 > len(data):
        raise ModelError("damaged: a block of the index lies outside of it")
    if data[offset + size] != 0:
        raise ModelError("the index of the checkpoint is compressed, which is not read here")
    return data[offset : offset + size]


def _entries(block: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """The keys of a block, put together from their parts, and the values."""
    if len(block) < 4:
        raise ModelError("damaged: an empty block in the index")
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (restarts + 1)
    if end < 0:
        raise ModelError("damaged: a block of the index claims more than it has")
    at, key = 0, b""
    while at < end:
        shared, at = varint(block, at)
        fresh, at = varint(block, at)
        size, at = varint(block, at)
        if shared > len(key) or fresh + size > end - at or shared + fresh > _LONGEST_KEY:
            raise ModelError("damaged: an entry of the index claims more than it has")
        key = key[:shared] + bytes(block[at : at + fresh])
        at += fresh
        yield key, block[at : at + size]
        at += size


def _weight(key: bytes, value: memoryview) -> Weight:
    dtype, size = "unknown", 0
    shape: tuple[int | None, ...] | None = ()
    for part, content in fields(value):
        if part == 1:
            dtype = dtype_name(number(content))
        elif part == 2:
            shape = parse_shape(message(content))
        elif part == 5:
            size = max(0, number(content))
    return Weight(shown(key), TensorSpec(dtype, shape), size)
