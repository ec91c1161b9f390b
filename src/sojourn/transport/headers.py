"""The header of a message: some meta bytes, and for each array its dtype, shape and place.

Pure. The writer packs a header, and a reader that trusts nothing parses it: every size, offset,
rank and dtype is checked against the memory that really exists.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sojourn.errors import InputError
from sojourn.transport import strings
from sojourn.transport.copying import write
from sojourn.values.dtypes import DTYPE_OF_NUMBER, NUMBER_OF_DTYPE, NUMBER_OF_NAME, STRING
from sojourn.values.rows import Rows

MAX_BYTES = 64 * 2**20
MAX_RANK = 64  # numpy's own limit; 32 before numpy 2
IN_MESSAGE = 0  # an array behind its header; other arrays give the number of an attached file

_HEAD = struct.Struct("<II")  # meta bytes, number of arrays
_ARRAY = struct.Struct("<HHIQQ")  # dtype, rank, attached file, offset, bytes
_STRING_NUMBER = NUMBER_OF_NAME[STRING]


class ProtocolError(Exception):
    """The peer wrote something impossible."""


class Block:
    """One array of a message that is being written."""

    __slots__ = ("array", "attached", "nbytes", "number", "offset", "shape", "text", "view")

    def __init__(self, array: np.ndarray | Rows) -> None:
        self.array = array
        self.shape = array.shape
        self.attached = IN_MESSAGE
        self.offset = 0
        self.text: bytes | None = None
        self.view: np.ndarray | None = None  # where its data is written, once the offset is known
        if array.ndim > MAX_RANK:
            raise InputError(f"arrays of rank {array.ndim} cannot be sent (at most {MAX_RANK})")
        if array.dtype.kind in "OSU":
            self.text = strings.pack(array.joined() if isinstance(array, Rows) else array)
            self.number = _STRING_NUMBER
            self.nbytes = len(self.text)
            return
        dtype = array.dtype.newbyteorder("=") if array.dtype.byteorder == ">" else array.dtype
        number = NUMBER_OF_DTYPE.get(dtype)
        if number is None:
            raise TypeError(f"arrays of dtype {array.dtype} cannot be sent")
        self.number = number
        count = 1
        for dim in array.shape:
            count *= dim
        self.nbytes = count * dtype.itemsize

    @property
    def dtype(self) -> np.dtype[Any]:
        return DTYPE_OF_NUMBER[self.number]

    def write(self, buffer: memoryview) -> None:
        """Write the data into the message, at the offset."""
        if self.text is not None:
            buffer[self.offset : self.offset + self.nbytes] = self.text
            return
        self.view = view = np.ndarray(self.shape, self.dtype, buffer=buffer, offset=self.offset)
        write(view, self.array)


def size_of(meta: bytes, blocks: list[Block]) -> int:
    """Return the size of the header in bytes."""
    return _HEAD.size + len(meta) + sum(_ARRAY.size + 8 * len(b.shape) for b in blocks)


def pack(meta: bytes, blocks: list[Block]) -> bytes:
    """Return the header, once every block has its offset."""
    parts = [_HEAD.pack(len(meta), len(blocks)), meta]
    for b in blocks:
        rank = len(b.shape)
        parts.append(_ARRAY.pack(b.number, rank, b.attached, b.offset, b.nbytes))
        parts.append(struct.pack(f"<{rank}q", *b.shape))
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class Described:
    """One array as a header describes it; sizes agree with each other, offsets are unchecked."""

    dtype: np.dtype[Any] | None  # None: strings
    shape: tuple[int, ...]
    attached: int
    offset: int
    nbytes: int
    count: int  # of elements


def parse(header: bytes) -> tuple[bytes, list[Described]]:
    """Return meta and arrays of a header copy, which the peer can no longer change."""
    meta_bytes, count = _HEAD.unpack_from(header)
    at = _HEAD.size + meta_bytes
    if at + count * _ARRAY.size > len(header):
        raise ProtocolError("the header is shorter than what it announces")
    meta = header[_HEAD.size : at]
    arrays = []
    for _ in range(count):
        if at + _ARRAY.size > len(header):
            raise ProtocolError("the header ends in the middle of an array")
        number, rank, attached, offset, nbytes = _ARRAY.unpack_from(header, at)
        at += _ARRAY.size
        if rank > MAX_RANK or at + 8 * rank > len(header):
            raise ProtocolError(f"a rank of {rank} is impossible")
        shape = struct.unpack_from(f"<{rank}q", header, at)
        at += 8 * rank
        arrays.append(_described(number, shape, attached, offset, nbytes))
    if at != len(header):
        raise ProtocolError("the header is longer than what it announces")
    return meta, arrays


def _described(
    number: int, shape: tuple[int, ...], attached: int, offset: int, nbytes: int
) -> Described:
    count = 1
    for dim in shape:
        if dim < 0:
            raise ProtocolError(f"a dimension of {dim} is impossible")
        count *= dim
    if number == _STRING_NUMBER:
        if count > nbytes // 8:
            raise ProtocolError(f"{count} strings do not fit in {nbytes} bytes")
        return Described(None, shape, attached, offset, nbytes, count)
    dtype = DTYPE_OF_NUMBER.get(number)
    if dtype is None:
        raise ProtocolError(f"there is no dtype number {number}")
    if count * dtype.itemsize != nbytes:
        raise ProtocolError(f"shape {shape} of {dtype} does not have {nbytes} bytes")
    return Described(dtype, shape, attached, offset, nbytes, count)


def read(described: Described, memory: Any, size: int) -> np.ndarray:
    """Return the array in this memory: numbers as a view, strings as copies."""
    if described.offset + described.nbytes > size:
        raise ProtocolError("an array reaches beyond the memory")
    return _guarded(lambda: _read(described, memory))


def _read(described: Described, memory: Any) -> np.ndarray:
    if described.dtype is None:
        start = described.offset
        return strings.unpack(memory[start : start + described.nbytes], described.shape)
    return np.ndarray(described.shape, described.dtype, buffer=memory, offset=described.offset)


def _guarded(make: Callable[[], np.ndarray]) -> np.ndarray:
    try:
        return make()
    except ValueError as error:  # for example zero times more than fits in 63 bits
        raise ProtocolError(str(error)) from None
