"""One message at a time in a segment: some meta bytes and some arrays.

The layout of a message (meta, dtypes, shapes, offsets) is written once. As long as messages of
the same layout follow, only the array data is copied and the peer uses the views it already has:
this is what makes a small call cheap.

Trust: a reader copies the header out of shared memory before it looks at it, and checks every
size, offset, rank and dtype in it. Whatever the peer writes later cannot change what was checked.
"""

from __future__ import annotations

import errno
import math
import os
import socket
import struct
import time
from collections.abc import Sequence

import numpy as np

from sojourn.errors import InputError
from sojourn.transport import frames, strings
from sojourn.transport.segment import Segment, SegmentError
from sojourn.values.dtypes import DTYPE_OF_NUMBER, NUMBER_OF_DTYPE, NUMBER_OF_NAME, STRING

# Words that a writer leaves for its reader (8 bytes each, relative to its part of the board).
SEQUENCE, LAYOUT, HEADER_BYTES, GENERATION, STATUS = range(5)

ALIGNMENT = 64
# TensorFlow adopts a fed buffer that is aligned to 64 bytes, so that a variable may end up living
# in it. Offsetting the data makes TensorFlow copy.
SKEW = 16
MAX_HEADER_BYTES = 64 * 2**20
MAX_RANK = 64  # numpy's own; 32 before its version 2
LAYOUTS_KEPT = 128
MAX_REUSED_META = 16
FIRST_SEGMENT_BYTES = 256 * 1024
# A segment that was made for a message much larger than those that follow is given up after some
# of them. They are counted where layouts are written, and none is remembered until that is decided.
SPARED_BYTES = 16 * 2**20
TOO_LARGE = 8
PATIENCE = 32
_CROWDED_SECONDS = 2.0

_HEAD = struct.Struct("<II")  # meta bytes, number of arrays
_ARRAY = struct.Struct("<HHIQQ")  # dtype, rank, unused, offset, bytes
_STRING_NUMBER = NUMBER_OF_NAME[STRING]
# What TensorFlow has in a tensor for each. Here they become objects, several times as large as what
# crosses: by empty or short ones a small message would fill much memory.
_LEAST_OF_A_STRING = 24


class ProtocolError(Exception):
    """The peer wrote something that cannot be."""


class _Layout:
    __slots__ = ("count", "number", "views")

    def __init__(self, number: int, views: list[np.ndarray]) -> None:
        self.number = number
        self.views = views
        self.count = len(views)


class Outbox:
    """The writing end: it owns its segment, and makes a larger one when a message needs it."""

    def __init__(self, words: memoryview, channel: socket.socket) -> None:
        self._words = words
        self._channel = channel
        self._segment: Segment | None = None
        self._buffer: memoryview = memoryview(b"")
        self._generation = 0
        self._number = 0
        self._layouts: dict[bytes, _Layout] = {}
        self._small = 0  # messages since the last that needed a segment of this size
        self._patience = PATIENCE

    @property
    def size(self) -> int:
        """Bytes of shared memory held."""
        return self._segment.size if self._segment else 0

    def put(self, meta: bytes, arrays: Sequence[np.ndarray], *, adoptable: bool = False) -> None:
        """Write a message. The peer may look at it once the sequence word has changed.

        `adoptable`: whoever reads the arrays may keep using their memory until the next message.
        """
        layout = self._layouts.get(meta)
        if layout is not None and layout.count == len(arrays):
            views = layout.views
            for view, array in zip(views, arrays):  # noqa: B905 - equal lengths, hot path
                if array.shape != view.shape or array.dtype != view.dtype:
                    break
            else:
                for view, array in zip(views, arrays):  # noqa: B905
                    view[...] = array
                words = self._words
                words[LAYOUT] = layout.number
                words[HEADER_BYTES] = 0
                return
        self._put_new_layout(meta, arrays, adoptable)

    def _put_new_layout(self, meta: bytes, arrays: Sequence[np.ndarray], adoptable: bool) -> None:
        blocks = [_Block(array) for array in arrays]
        header_bytes = _HEAD.size + len(meta) + sum(_ARRAY.size + 8 * b.rank for b in blocks)
        if header_bytes > MAX_HEADER_BYTES:
            raise ValueError(f"the message's header would have {header_bytes} bytes")
        skew = 0 if adoptable else SKEW
        end = header_bytes
        for block in blocks:
            block.offset = -(-end // ALIGNMENT) * ALIGNMENT + skew
            end = block.offset + block.nbytes
        self._ensure(end)
        header = bytearray(_HEAD.pack(len(meta), len(blocks)))
        header += meta
        for block in blocks:
            header += _ARRAY.pack(block.number, block.rank, 0, block.offset, block.nbytes)
            header += struct.pack(f"<{block.rank}q", *block.shape)
        self._buffer[:header_bytes] = header
        views = [block.write(self._buffer) for block in blocks]
        number = 0
        # Only steps come again and again with the same short meta; calls are one of a kind.
        if (
            self._small == 0
            and len(meta) <= MAX_REUSED_META
            and all(view is not None for view in views)
        ):
            replaced = self._layouts.get(meta)
            if replaced is not None:
                # The number is used again: numbers that grew with every change of shape would push
                # layouts that are still in use here out of the reader's memory.
                number = replaced.number
            else:
                if len(self._layouts) >= LAYOUTS_KEPT:
                    self._layouts.clear()
                self._number = number = self._number + 1
            self._layouts[meta] = _Layout(number, [v for v in views if v is not None])
        self._words[LAYOUT] = number
        self._words[HEADER_BYTES] = header_bytes

    def _ensure(self, size: int) -> None:
        if self._segment is not None and size <= self._segment.size:
            if self._segment.size <= SPARED_BYTES or size * TOO_LARGE > self._segment.size:
                self._small = 0
                return
            self._small += 1
            if self._small <= self._patience:
                return
            self._patience *= 2  # if it is needed again, it will be kept for longer
        self._small = 0
        wanted = max(FIRST_SEGMENT_BYTES, size if size > 2**26 else 1 << (size - 1).bit_length())
        segment, fd = Segment.create(wanted)
        try:
            _hand_over(self._channel, fd)
        finally:
            os.close(fd)
        self._layouts.clear()
        self._segment = segment
        self._buffer = memoryview(segment.memory)
        self._generation += 1
        self._words[GENERATION] = self._generation


def _hand_over(channel: socket.socket, fd: int) -> None:
    until = time.monotonic() + _CROWDED_SECONDS
    while True:
        try:
            socket.send_fds(channel, [b"s"], [fd])
            return
        except OSError as error:
            # Descriptors on their way count for all processes of a user together.
            if error.errno != errno.ETOOMANYREFS or time.monotonic() > until:
                raise
        time.sleep(0.005)


class _Block:
    """Where one array goes."""

    __slots__ = ("array", "nbytes", "number", "offset", "rank", "shape", "text")

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.shape = array.shape
        self.rank = array.ndim
        self.offset = 0
        self.text: bytes | None = None
        if self.rank > MAX_RANK:
            raise InputError(f"arrays of rank {self.rank} cannot be sent (at most {MAX_RANK})")
        if array.dtype.kind in "OSU":
            self.text = strings.pack(array)
            self.number = _STRING_NUMBER
            self.nbytes = len(self.text)
            return
        dtype = array.dtype.newbyteorder("=") if array.dtype.byteorder == ">" else array.dtype
        number = NUMBER_OF_DTYPE.get(dtype)
        if number is None:
            raise TypeError(f"arrays of dtype {array.dtype} cannot be sent")
        self.number = number
        self.nbytes = array.size * dtype.itemsize

    def write(self, buffer: memoryview) -> np.ndarray | None:
        if self.text is not None:
            buffer[self.offset : self.offset + self.nbytes] = self.text
            return None
        view: np.ndarray = np.ndarray(
            self.shape, DTYPE_OF_NUMBER[self.number], buffer=buffer, offset=self.offset
        )
        view[...] = self.array
        return view


class Inbox:
    """The reading end. Arrays it gives are views: valid until the next message, read-only."""

    def __init__(
        self, words: memoryview, channel: socket.socket, most_bytes: int | None = None
    ) -> None:
        self._words = words
        self._channel = channel
        self._most_bytes = most_bytes
        self._segment: Segment | None = None
        self._generation = 0
        self._layouts: dict[int, tuple[bytes, list[np.ndarray]]] = {}
        self._sizes: dict[int, int] = {}  # of their headers
        self._kept_bytes = 0  # their sum

    @property
    def size(self) -> int:
        """Bytes of the peer's shared memory mapped here."""
        return self._segment.size if self._segment else 0

    def take(self) -> tuple[bytes, list[np.ndarray]]:
        """The message that is there now."""
        words = self._words
        if words[GENERATION] != self._generation:
            self._receive_segment()
        header_bytes = words[HEADER_BYTES]
        if header_bytes == 0:
            known = self._layouts.get(words[LAYOUT])
            if known is None:
                raise ProtocolError("the peer refers to a layout that it never sent")
            return known
        return self._read_layout(header_bytes, words[LAYOUT])

    def _receive_segment(self) -> None:
        # Taken strictly one by one: a generation is announced by exactly one descriptor.
        if self._words[GENERATION] != self._generation + 1:
            raise ProtocolError("the peer skipped a generation of its memory")
        try:
            _, fds, flags = frames.receive_fds(self._channel, 1, 4, socket.MSG_DONTWAIT)
        except OSError as error:
            raise ProtocolError(f"the peer's memory did not come: {error.strerror}") from None
        try:
            if not fds and flags & socket.MSG_CTRUNC:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))  # our own trouble
            if len(fds) != 1 or flags & socket.MSG_CTRUNC:
                raise ProtocolError(f"expected one descriptor with the memory, got {len(fds)}")
            self._segment = Segment.receive(fds[0], most_bytes=self._most_bytes)
        except SegmentError as error:
            raise ProtocolError(str(error)) from None
        finally:
            for fd in fds:
                os.close(fd)
        self._layouts.clear()
        self._sizes.clear()
        self._kept_bytes = 0
        self._generation += 1

    def _read_layout(self, header_bytes: int, number: int) -> tuple[bytes, list[np.ndarray]]:
        segment = self._segment
        if segment is None or not _HEAD.size <= header_bytes <= min(MAX_HEADER_BYTES, segment.size):
            raise ProtocolError(f"a header of {header_bytes} bytes cannot be")
        header = segment.memory[:header_bytes]  # a copy: from here on the peer cannot change it
        meta_bytes, count = _HEAD.unpack_from(header)
        at = _HEAD.size + meta_bytes
        if at + count * _ARRAY.size > header_bytes:
            raise ProtocolError("the header is shorter than what it announces")
        meta = header[_HEAD.size : at]
        arrays: list[np.ndarray] = []
        has_strings = False
        texts = 0
        left = segment.size  # arrays that overlap would make a reader copy more than there is
        for _ in range(count):
            if at + _ARRAY.size > header_bytes:
                raise ProtocolError("the header ends in the middle of an array")
            dtype_number, rank, _, offset, nbytes = _ARRAY.unpack_from(header, at)
            at += _ARRAY.size
            if rank > MAX_RANK or at + 8 * rank > header_bytes:
                raise ProtocolError(f"a rank of {rank} cannot be")
            shape = struct.unpack_from(f"<{rank}q", header, at)
            at += 8 * rank
            left -= nbytes
            if offset + nbytes > segment.size or left < 0:
                raise ProtocolError("an array reaches beyond the memory")
            if dtype_number == _STRING_NUMBER:
                has_strings = True
                texts += math.prod(shape)
                if self._most_bytes is not None and texts * _LEAST_OF_A_STRING > self._most_bytes:
                    raise ProtocolError(f"{texts} strings are more than the peer can have had")
            arrays.append(_view(segment, dtype_number, shape, offset, nbytes))
        if at != header_bytes:
            raise ProtocolError("the header is longer than what it announces")
        if number and not has_strings:
            self._keep(number, header_bytes, meta, arrays)
        return meta, arrays

    def _keep(self, number: int, header_bytes: int, meta: bytes, arrays: list[np.ndarray]) -> None:
        # The writer keeps at most half as many, and of those it has numbered last.
        if len(self._layouts) > 2 * LAYOUTS_KEPT:
            oldest = next(iter(self._layouts))
            del self._layouts[oldest]
            self._kept_bytes -= self._sizes.pop(oldest)
        self._kept_bytes += header_bytes - self._sizes.get(number, 0)
        # Else a peer could have us keep as much as it likes, one message after the other.
        if len(meta) > MAX_REUSED_META or self._kept_bytes > MAX_HEADER_BYTES:
            raise ProtocolError("the peer numbers messages that are too large to be kept")
        self._sizes[number] = header_bytes
        self._layouts[number] = (meta, arrays)


def _view(
    segment: Segment, number: int, shape: tuple[int, ...], offset: int, nbytes: int
) -> np.ndarray:
    count = 1
    for dim in shape:
        if dim < 0:
            raise ProtocolError(f"a dimension of {dim} cannot be")
        count *= dim
    if number == _STRING_NUMBER:
        if count > nbytes // 8:
            raise ProtocolError(f"{count} strings cannot be in {nbytes} bytes")
        try:
            return strings.unpack(segment.memory[offset : offset + nbytes], shape)
        except ValueError as error:
            raise ProtocolError(str(error)) from None
    dtype = DTYPE_OF_NUMBER.get(number)
    if dtype is None:
        raise ProtocolError(f"there is no dtype number {number}")
    if count * dtype.itemsize != nbytes:
        raise ProtocolError(f"shape {shape} of {dtype} does not have {nbytes} bytes")
    try:
        return np.ndarray(shape, dtype, buffer=segment.memory, offset=offset)
    except ValueError as error:  # for example zero times more than fits in 63 bits
        raise ProtocolError(str(error)) from None
