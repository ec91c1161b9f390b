"""A frame: a fixed prefix, a msgpack head, and the bytes of arrays, each aligned to 64.

Nothing is unpickled. Every length is checked before memory is taken for it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

from sojourn.cluster.wire.words import AnyReply, AnyRequest, Head, Spec
from sojourn.errors import SojournError
from sojourn.transport import strings
from sojourn.values.dtypes import BY_NAME, STRING, name_of

PREFIX = struct.Struct("<4sIQ")
MAGIC = b"sjn1"
MAX_HEAD_BYTES = 2**20
MAX_BODY_BYTES = 2**36
_ALIGNMENT = 64
_PADDING = bytes(_ALIGNMENT)

T = TypeVar("T")


class BrokenFrame(SojournError):
    """The peer sent something else than a frame. The connection is closed."""


class RequestHead(Head, array_like=True):
    body: AnyRequest


class ReplyHead(Head, array_like=True):
    body: AnyReply


REQUESTS = msgspec.msgpack.Decoder(RequestHead)
REPLIES = msgspec.msgpack.Decoder(ReplyHead)
_encode = msgspec.msgpack.Encoder().encode


def pack(number: int, body: Any, arrays: Sequence[np.ndarray] = ()) -> list[Any]:
    """The buffers of a frame. Those of arrays refer to their memory."""
    specs: list[Spec] = []
    buffers: list[Any] = [b""]
    size = 0
    for array in arrays:
        if array.dtype.kind in "OSU":
            block: Any = strings.pack(array)
            specs.append((STRING, array.shape, len(block)))
            count = len(block)
        else:
            name = name_of(array.dtype)
            if name is None:
                raise TypeError(f"arrays of dtype {array.dtype} cannot be sent")
            count = array.nbytes
            specs.append((name, array.shape, count))
            flat = np.ascontiguousarray(array).reshape(-1)  # it makes a row of a scalar
            block = flat.view(np.uint8).data if count else b""
        buffers.append(block)
        padding = -count % _ALIGNMENT
        if padding:
            buffers.append(_PADDING[:padding])
        size += count + padding
    head = _encode(Head(number, body, specs))
    buffers[0] = PREFIX.pack(MAGIC, len(head), size) + head
    return buffers


def lengths(prefix: bytes | bytearray | memoryview) -> tuple[int, int]:
    """How long the head and the arrays of a frame are."""
    magic, head, body = PREFIX.unpack_from(prefix)
    if magic != MAGIC or head > MAX_HEAD_BYTES or body > MAX_BODY_BYTES:
        raise BrokenFrame("the peer does not speak sojourn's data plane")
    return head, body


def unpack_head(decoder: msgspec.msgpack.Decoder[T], data: Any) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenFrame(f"the head of a frame cannot be read: {error}") from None


def unpack_arrays(specs: Sequence[Spec], body: np.ndarray) -> list[np.ndarray]:
    """The arrays, as views on the bytes that came."""
    arrays: list[np.ndarray] = []
    offset = 0
    for name, shape, count in specs:
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
