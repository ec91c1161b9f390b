"""A frame: a fixed prefix, a msgpack head, and the bytes of arrays, each aligned to 64.

Nothing is unpickled. Every length is checked before memory is allocated for it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

from sojourn.cluster.wire.words import AnyReply, AnyRequest, Head, Place, Spec
from sojourn.errors import SojournError
from sojourn.transport import strings
from sojourn.transport.segment import SegmentError
from sojourn.values.dtypes import BY_NAME, STRING, name_of

PREFIX = struct.Struct("<4sIQ")
MAGIC = b"sjn1"
MAX_HEAD_BYTES = 2**20
MAX_BODY_BYTES = 2**36
_ALIGNMENT = 64
_PADDING = bytes(_ALIGNMENT)

T = TypeVar("T")
NAME_OF = {dtype: name for name, dtype in BY_NAME.items()}


class BrokenFrame(SojournError):
    """The peer sent something other than a frame. The connection is closed."""


class RequestHead(Head, array_like=True):
    body: AnyRequest


class ReplyHead(Head, array_like=True):
    body: AnyReply


REQUESTS = msgspec.msgpack.Decoder(RequestHead)
REPLIES = msgspec.msgpack.Decoder(ReplyHead)
_encode = msgspec.msgpack.Encoder().encode


def pack(
    number: int, body: Any, arrays: Sequence[np.ndarray] = (), places: Sequence[Place] = ()
) -> list[Any]:
    """Return the buffers of a frame. Array buffers refer to the arrays' memory; arrays in `places`
    are not in the frame."""
    specs: list[Spec] = []
    buffers: list[Any] = [b""]
    size = 0
    elsewhere = {place[0] for place in places}
    for index, array in enumerate(arrays):
        if index in elsewhere:
            specs.append((NAME_OF[array.dtype], array.shape, 0))
            continue
        if array.dtype.kind in "OSU":
            block: Any = strings.pack(array)
            specs.append((STRING, array.shape, len(block)))
            count = len(block)
        else:
            name = name_of(array.dtype)
            if name is None:
                raise TypeError(f"arrays of dtype {array.dtype} cannot be sent")
            if not array.dtype.isnative:
                array = array.astype(array.dtype.newbyteorder("="))
            count = array.nbytes
            specs.append((name, array.shape, count))
            flat = np.ascontiguousarray(array).reshape(-1)  # makes a scalar one-dimensional
            block = flat.view(np.uint8).data if count else b""
        buffers.append(block)
        padding = -count % _ALIGNMENT
        if padding:
            buffers.append(_PADDING[:padding])
        size += count + padding
    head = _encode(Head(number, body, specs, list(places)))
    buffers[0] = PREFIX.pack(MAGIC, len(head), size) + head
    return buffers


def lengths(prefix: bytes | bytearray | memoryview) -> tuple[int, int]:
    """Return the lengths in bytes of a frame's head and arrays."""
    magic, head, body = PREFIX.unpack_from(prefix)
    if magic != MAGIC or head > MAX_HEAD_BYTES or body > MAX_BODY_BYTES:
        raise BrokenFrame("the peer does not speak sojourn's data plane")
    return head, body


def unpack_head(decoder: msgspec.msgpack.Decoder[T], data: Any) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenFrame(f"the head of a frame cannot be read: {error}") from None


Opener = Callable[[Place, tuple[int, ...], np.dtype[Any]], np.ndarray]


def unpack_arrays(
    specs: Sequence[Spec],
    body: np.ndarray,
    places: Sequence[Place] = (),
    opener: Opener | None = None,
) -> list[np.ndarray]:
    """Return the arrays: views of the received bytes, or read by the opener from another place."""
    arrays: list[np.ndarray] = []
    offset = 0
    elsewhere = {place[0]: place for place in places}
    for index, (name, shape, count) in enumerate(specs):
        if index in elsewhere:
            arrays.append(_opened(opener, elsewhere[index], name, shape))
            continue
        end = offset + count
        if count < 0 or end > body.nbytes or any(dim < 0 for dim in shape):
            raise BrokenFrame("an array reaches beyond its frame")
        part = body[offset:end]
        if name == STRING:
            try:
                arrays.append(strings.unpack(part.tobytes(), shape))
            except ValueError as error:
                raise BrokenFrame(str(error)) from None
        else:
            dtype = BY_NAME.get(name)
            if dtype is None or math.prod(shape) * dtype.itemsize != count:
                raise BrokenFrame(f"an array of {name}{list(shape)} does not take {count} bytes")
            arrays.append(part.view(dtype).reshape(shape))
        offset = end + -count % _ALIGNMENT
    return arrays


def _opened(opener: Opener | None, place: Place, name: str, shape: tuple[int, ...]) -> np.ndarray:
    dtype = BY_NAME.get(name)
    if opener is None or dtype is None:
        raise BrokenFrame("an array is where it cannot be read")
    try:
        return opener(place, shape, dtype)
    except (OSError, SegmentError) as error:
        raise BrokenFrame(f"an array cannot be read where it is: {error}") from None
