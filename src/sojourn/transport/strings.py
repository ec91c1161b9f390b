"""String arrays as one block of bytes: all lengths, then all strings."""

from __future__ import annotations

import numpy as np


def pack(array: np.ndarray) -> bytes:
    """Return the bytes of an array of `bytes` or `str` elements; text is encoded as UTF-8."""
    items = array.reshape(-1).tolist()
    items = [item if type(item) is bytes else _encoded(item) for item in items]
    lengths = np.fromiter(map(len, items), dtype="<u8", count=len(items))
    return lengths.tobytes() + b"".join(items)


def unpack(block: bytes, shape: tuple[int, ...]) -> np.ndarray:
    """Undo `pack`, with `bytes` elements. Raises ValueError if sizes do not add up."""
    count = 1
    for dim in shape:
        count *= dim
    start = 8 * count
    if start > len(block):
        raise ValueError(f"{count} strings do not fit in {len(block)} bytes")
    lengths = np.frombuffer(block, dtype="<u8", count=count).tolist()
    if start + sum(lengths) != len(block):
        raise ValueError("the lengths of the strings do not add up")
    result = np.empty(count, dtype=object)
    for i, length in enumerate(lengths):
        result[i] = block[start : start + length]
        start += length
    return result.reshape(shape)


def _encoded(item: object) -> bytes:
    if isinstance(item, bytes):
        return item
    if isinstance(item, str):
        return item.encode()
    raise TypeError(f"a string tensor takes bytes or str, not {type(item).__name__}: {item!r}")
