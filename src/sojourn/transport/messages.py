"""One message at a time in a segment: some meta bytes and some arrays.

The layout of a message (meta, dtypes, shapes, offsets) is written once. While later messages have
the same layouts, only the array data is copied and the peer reuses the views it already has:
this is what makes a small call cheap. Large arrays may lie outside the message (`attachments`).

Trust: a reader copies the header out of shared memory before it reads it, and checks every
size, offset, rank and dtype in it. Later writes of the peer cannot change what was checked.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from sojourn.transport import frames, headers
from sojourn.transport.attachments import Attached, Attacher
from sojourn.transport.copying import SHARED_BYTES, write
from sojourn.transport.headers import Block, ProtocolError
from sojourn.transport.segment import Segment, SegmentError
from sojourn.values.rows import Rows

# Words that a writer leaves for its reader, as indices into its row of the board (8 bytes each).
SEQUENCE, LAYOUT, HEADER_BYTES, GENERATION, STATUS = range(5)

ALIGNMENT = 64
# In bytes. TensorFlow adopts a fed buffer that is aligned to 64 bytes, so that a variable may end
# up living in it. Offsetting the data makes TensorFlow copy.
SKEW = 16
MAX_HEADER_BYTES = headers.MAX_BYTES
LAYOUTS_KEPT = 128
# In bytes: the headers of all kept layouts together stay well below what a reader accepts.
MAX_KEPT_HEADER_BYTES = MAX_HEADER_BYTES // (2 * LAYOUTS_KEPT)
MAX_REUSED_META = 16
FIRST_SEGMENT_BYTES = 256 * 1024
# A segment made for a message much larger than the following ones is given up after some of those.
# They are counted where layouts are written, and no layout is remembered until that is decided.
SPARED_BYTES = 16 * 2**20
TOO_LARGE = 8
PATIENCE = 32
_CROWDED_SECONDS = 2.0
_SMALL_BYTES = 64 * 1024  # arrays up to this size are copied without further checks
_SLOW_BYTES = 512 * 1024  # copying this many takes longer than waking a reader
_LEAST_HEADER_BYTES = 8
_MOST_FILES = 1024  # announced by a message and the failed ones before it
MAIN = 255  # the byte that announces the message's own segment; attached files send their number
# Bytes that TensorFlow itself needs for each string. Here strings become Python objects, several
# times as large as what crosses: many empty or short strings in a small message could fill memory.
_LEAST_OF_A_STRING = 24


class Layout:
    """Where the arrays of a message lie, so that they can be overwritten in place."""

    __slots__ = ("count", "end", "is_large", "is_slow", "number", "views")

    def __init__(self, number: int, views: list[np.ndarray], end: int) -> None:
        self.number = number
        self.end = end  # bytes of the message, header included
        self.views = views
        self.count = len(views)
        self.is_large = any(view.nbytes > _SMALL_BYTES for view in views)
        self.is_slow = _SLOW_BYTES <= end < SHARED_BYTES  # larger ones are copied by several cores


class Outbox:
    """The writing end: it owns its segment, and makes a larger one when a message needs it."""

    def __init__(self, words: memoryview, channel: socket.socket) -> None:
        self._words = words
        self._channel = channel
        self._segment: Segment | None = None
        self._buffer: memoryview = memoryview(b"")
        self._handed_over = 0  # files that were sent to the reader
        # The last layout of each meta; below, all layouts by meta, shapes and dtypes.
        self.last: dict[bytes, Layout] = {}
        self._layouts: OrderedDict[Any, Layout] = OrderedDict()
        self._small = 0  # messages since the last one that needed a segment of this size
        self._patience = PATIENCE

    @property
    def size(self) -> int:
        """Bytes of shared memory held."""
        return self._segment.size if self._segment else 0

    def put(
        self,
        meta: bytes,
        arrays: Sequence[np.ndarray | Rows],
        *,
        adoptable: bool = False,
        attacher: Attacher | None = None,
    ) -> bool:
        """Write a message. The peer may read it once the sequence word has changed.

        `adoptable`: the reader may keep using the arrays' memory until the next message.
        Returns whether an array lies outside the message and must live until the answer arrives.
        """
        layout = self.last.get(meta)
        if layout is not None and layout.count == len(arrays):
            views = layout.views
            for view, array in zip(views, arrays):  # noqa: B905 - equal lengths, hot path
                if array.shape != view.shape or array.dtype != view.dtype:
                    break
            else:
                if not layout.is_large:
                    for view, array in zip(views, arrays):  # noqa: B905
                        if type(array) is Rows:
                            write(view, array)
                        else:
                            view[...] = array
                    words = self._words
                    words[LAYOUT] = layout.number
                    words[HEADER_BYTES] = 0
                    return False
                if attacher is None or not attacher.wants(arrays):
                    self._put_again(layout, arrays)
                    return False
        return self._put_otherwise(meta, arrays, adoptable, attacher)

    def _put_again(self, layout: Layout, arrays: Sequence[np.ndarray | Rows]) -> None:
        for view, array in zip(layout.views, arrays):  # noqa: B905 - equal lengths
            write(view, array)
        if self._small and layout.end * TOO_LARGE > self.size:
            self._small = 0
        self._words[LAYOUT] = layout.number
        self._words[HEADER_BYTES] = 0

    def _put_otherwise(
        self,
        meta: bytes,
        arrays: Sequence[np.ndarray | Rows],
        adoptable: bool,
        attacher: Attacher | None,
    ) -> bool:
        key = None
        if len(meta) <= MAX_REUSED_META:  # a step, which may repeat; calls rarely do
            key = (meta, *[(array.shape, array.dtype) for array in arrays])
            layout = self._layouts.get(key)
            if layout is not None and not (attacher is not None and attacher.wants(arrays)):
                self._layouts.move_to_end(key)
                self.last[meta] = layout
                self._put_again(layout, arrays)
                return False
        return self._put_new_layout(key, meta, arrays, adoptable, attacher)

    def _put_new_layout(
        self,
        key: Any,
        meta: bytes,
        arrays: Sequence[np.ndarray | Rows],
        adoptable: bool,
        attacher: Attacher | None,
    ) -> bool:
        blocks = [Block(array) for array in arrays]
        header_bytes = headers.size_of(meta, blocks)
        if header_bytes > MAX_HEADER_BYTES:
            raise ValueError(f"the message's header would have {header_bytes} bytes")
        inside = blocks
        if attacher is not None:
            attacher.begin()
            inside = [block for block in blocks if not attacher.attach(block, self._hand_over)]
        end = header_bytes
        for block in inside:
            block.offset = -(-end // ALIGNMENT) * ALIGNMENT + (0 if adoptable else SKEW)
            end = block.offset + block.nbytes
        self._ensure(end)
        self._buffer[:header_bytes] = headers.pack(meta, blocks)
        for block in inside:
            block.write(self._buffer)
        is_whole = len(inside) == len(blocks)
        number = 0
        if (
            key is not None
            and self._small == 0
            and is_whole
            and header_bytes <= MAX_KEPT_HEADER_BYTES
        ):
            views = [block.view for block in blocks if block.view is not None]
            if len(views) == len(blocks):
                number = self._number_for(key)
                self._layouts[key] = self.last[meta] = Layout(number, views, end)
        self._words[LAYOUT] = number
        self._words[HEADER_BYTES] = header_bytes
        return not is_whole

    def _number_for(self, key: Any) -> int:
        """Return a number for a new layout: a free one, or the least recently used one."""
        if len(self._layouts) < LAYOUTS_KEPT:
            return len(self._layouts) + 1
        oldest, layout = self._layouts.popitem(last=False)
        if self.last.get(oldest[0]) is layout:
            del self.last[oldest[0]]
        return layout.number

    def _ensure(self, size: int) -> None:
        if self._segment is not None and size <= self._segment.size:
            if self._segment.size <= SPARED_BYTES or size * TOO_LARGE > self._segment.size:
                self._small = 0
                return
            self._small += 1
            if self._small <= self._patience:
                return
            self._patience *= 2  # if a large message follows, the next large segment is kept longer
        self._small = 0
        wanted = max(FIRST_SEGMENT_BYTES, size if size > 2**26 else 1 << (size - 1).bit_length())
        segment, fd = Segment.create(wanted)
        try:
            self._hand_over(fd, MAIN)
        finally:
            os.close(fd)
        self._layouts.clear()
        self.last.clear()
        self._segment = segment
        self._buffer = memoryview(segment.memory)

    def _hand_over(self, fd: int, number: int) -> None:
        until = time.monotonic() + _CROWDED_SECONDS
        while True:
            try:
                socket.send_fds(self._channel, [bytes([number])], [fd])
                break
            except OSError as error:
                # The limit on descriptors in transit covers all processes of a user together.
                if error.errno != errno.ETOOMANYREFS or time.monotonic() > until:
                    raise
            time.sleep(0.005)
        self._handed_over += 1
        self._words[GENERATION] = self._handed_over


class Inbox:
    """The reading end. Its arrays are read-only views that are valid until the next message."""

    def __init__(
        self,
        words: memoryview,
        channel: socket.socket,
        most_bytes: int | None = None,
        attached: Attached | None = None,
    ) -> None:
        """`attached` maps the arrays that lie outside a message; without it none may."""
        self._words = words
        self._channel = channel
        self._most_bytes = most_bytes
        self.attached = attached
        self._segment: Segment | None = None
        self._received = 0  # files
        self._layouts: dict[int, tuple[bytes, list[np.ndarray]]] = {}
        self._sizes: dict[int, int] = {}  # bytes of each layout's header
        self._kept_bytes = 0  # sum of `_sizes`

    @property
    def size(self) -> int:
        """Bytes of the peer's shared memory mapped here."""
        return self._segment.size if self._segment else 0

    def take(self) -> tuple[bytes, list[np.ndarray]]:
        """Return the current message, with arrays as views."""
        known = self._known()
        if known is not None:
            return known
        meta, views, _ = self._read_layout()
        return meta, views

    def take_owned(self) -> tuple[bytes, list[np.ndarray]]:
        """Return the current message, with arrays that own their memory."""
        known = self._known()
        if known is not None:
            meta, views = known
            return meta, [view.copy() for view in views]
        meta, views, handed_over = self._read_layout()
        return meta, [v if i in handed_over else v.copy() for i, v in enumerate(views)]

    def close(self) -> None:
        """Close the descriptors of attached files."""
        if self.attached is not None:
            self.attached.close()

    def _known(self) -> tuple[bytes, list[np.ndarray]] | None:
        words = self._words
        if words[GENERATION] != self._received:
            self._receive_files()
        if words[HEADER_BYTES]:
            return None
        known = self._layouts.get(words[LAYOUT])
        if known is None:
            raise ProtocolError("the peer refers to a layout that it never sent")
        return known

    def _receive_files(self) -> None:
        # Read only once: a peer that keeps announcing files would keep this loop running forever.
        announced = self._words[GENERATION] - self._received
        if not 0 < announced <= _MOST_FILES:
            raise ProtocolError(f"the peer's memory did not come: {announced} files were announced")
        for _ in range(announced):
            self._receive_file()
            self._received += 1

    def _receive_file(self) -> None:
        try:
            data, fds, flags = frames.receive_fds(self._channel, 1, 4, socket.MSG_DONTWAIT)
        except OSError as error:
            raise ProtocolError(f"the peer's memory did not come: {error.strerror}") from None
        try:
            if not fds and flags & socket.MSG_CTRUNC:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))  # our own limit
            if len(fds) != 1 or flags & socket.MSG_CTRUNC:
                raise ProtocolError(f"expected one descriptor with the memory, got {len(fds)}")
            if data[0] != MAIN:
                if self.attached is None:
                    raise ProtocolError("the peer may not attach memory")
                self.attached.receive(data[0], fds[0])
                return
            self._segment = Segment.receive(fds[0], most_bytes=self._most_bytes)
        except SegmentError as error:
            raise ProtocolError(str(error)) from None
        finally:
            for fd in fds:
                os.close(fd)
        self._layouts.clear()
        self._sizes.clear()
        self._kept_bytes = 0

    def _read_layout(self) -> tuple[bytes, list[np.ndarray], set[int]]:
        """Return meta, arrays, and the indices of the arrays that lie outside the message."""
        segment = self._segment
        header_bytes, number = self._words[HEADER_BYTES], self._words[LAYOUT]
        if segment is None or not (
            _LEAST_HEADER_BYTES <= header_bytes <= min(MAX_HEADER_BYTES, segment.size)
        ):
            raise ProtocolError(f"a header of {header_bytes} bytes is impossible")
        header = segment.memory[:header_bytes]  # a copy, which the peer cannot change
        meta, described = headers.parse(header)
        arrays: list[np.ndarray] = []
        outside: set[int] = set()
        texts = 0
        left = segment.size  # overlapping arrays would make a reader copy more than the segment has
        for i, each in enumerate(described):
            if each.attached != headers.IN_MESSAGE:
                if self.attached is None:
                    raise ProtocolError("the peer may not attach memory")
                outside.add(i)
                arrays.append(self.attached.view(each, self._words[SEQUENCE]))
                continue
            left -= each.nbytes
            if left < 0:
                raise ProtocolError("an array reaches beyond the memory")
            if each.dtype is None:
                texts += each.count
                if self._most_bytes is not None and texts * _LEAST_OF_A_STRING > self._most_bytes:
                    raise ProtocolError(f"{texts} strings are more than the peer can have had")
            arrays.append(headers.read(each, segment.memory, segment.size))
        if number and not outside and all(each.dtype is not None for each in described):
            self._keep(number, header_bytes, meta, arrays)
        return meta, arrays, outside

    def _keep(self, number: int, header_bytes: int, meta: bytes, arrays: list[np.ndarray]) -> None:
        # The writer keeps at most half as many, and only those that it has numbered last.
        if len(self._layouts) > 2 * LAYOUTS_KEPT:
            oldest = next(iter(self._layouts))
            del self._layouts[oldest]
            self._kept_bytes -= self._sizes.pop(oldest)
        self._kept_bytes += header_bytes - self._sizes.get(number, 0)
        # Otherwise a peer could make the reader keep any amount, one message after the other.
        if len(meta) > MAX_REUSED_META or self._kept_bytes > MAX_HEADER_BYTES:
            raise ProtocolError("the peer numbers messages that are too large to be kept")
        self._sizes[number] = header_bytes
        self._layouts[number] = (meta, arrays)


__all__ = ["Inbox", "Outbox", "ProtocolError"]
