"""Arrays that lie outside their message, in a memory file of their own that is handed over once.

Towards a worker these are the caller's placed arrays: only their place crosses. Towards a client
they are large results: the caller gets the memory itself instead of a copy, and the worker uses a
file again when the caller has let go of what was in it. If the caller keeps it, the worker makes
another, so that what is kept never grows a file.
"""

from __future__ import annotations

import os
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from sojourn.transport import placed
from sojourn.transport.board import RELEASED, RESULT_FILES
from sojourn.transport.copying import write
from sojourn.transport.headers import Block, Described, ProtocolError, read
from sojourn.transport.mapping import Mapping, address_of
from sojourn.transport.segment import Segment, SegmentError, checked_size

# Below this, writing a new header costs more than copying the array.
PLACED_AT_LEAST = 128 * 2**10
HANDED_OVER_AT_LEAST = 512 * 2**10
_PLACED_FILES = 16
# A result's file that was not needed for this many answers is given up, by both sides.
_PATIENCE = 64
_NEVER = 2**63
HandOver = Callable[[int, int], None]  # a descriptor, and the number that the file goes by


class Attacher(Protocol):
    """The writing end."""

    def wants(self, arrays: Sequence[Any]) -> bool:
        """Whether one of these would be attached."""

    def begin(self) -> None:
        """Another message is being written: what the last one used may go by other numbers."""

    def attach(self, block: Block, hand_over: HandOver) -> bool:
        """Place the block outside the message, if that pays."""


class Attached(Protocol):
    """The reading end."""

    def receive(self, number: int, fd: int) -> None:
        """A file has come, to go by this number from now on."""

    def view(self, described: Described, sequence: int) -> np.ndarray:
        """The array that lies in one of the files."""

    def close(self) -> None:
        """Give back the descriptors."""


class PlacedFiles:
    """The caller's end: what the user has placed is not copied."""

    def __init__(self) -> None:
        # Which file goes by which number; the one that was used least lately comes first. The
        # reader's mapping keeps no memory: a file's memory is given back with its last array. Only
        # that of one that a fork has too is kept, until its number goes to another.
        self._numbers: OrderedDict[int, tuple[weakref.ref[placed.MemoryFile], int]] = OrderedDict()
        self._in_message: set[int] = set()  # numbers that the message refers to

    def wants(self, arrays: Sequence[Any]) -> bool:
        return any(
            type(array) is np.ndarray
            and array.nbytes >= PLACED_AT_LEAST
            and placed.file_of(array) is not None
            for array in arrays
        )

    def begin(self) -> None:
        self._in_message.clear()

    def attach(self, block: Block, hand_over: HandOver) -> bool:
        array = block.array
        if block.nbytes < PLACED_AT_LEAST or not isinstance(array, np.ndarray):
            return False
        file = placed.file_of(array)
        if file is None or not array.flags.c_contiguous or not array.dtype.isnative:
            return False
        number = self._number_of(file, hand_over)
        if number is None:
            return False
        self._in_message.add(number)
        block.attached = number
        block.offset = placed.offset_in(file, array)
        return True

    def _number_of(self, file: placed.MemoryFile, hand_over: HandOver) -> int | None:
        """The number that the file goes by; None if this message needs all of them already."""
        key = id(file)
        known = self._numbers.get(key)
        if known is not None and known[0]() is file:
            self._numbers.move_to_end(key)
            return known[1]
        taken_over = None if known is None else key  # another one had its address
        if known is None and len(self._numbers) == _PLACED_FILES:
            taken_over = self._least_lately_used()
            if taken_over is None:
                return None
        number = len(self._numbers) + 1 if taken_over is None else self._numbers[taken_over][1]
        hand_over(file.fd, number)  # may fail: until now nothing has changed
        if taken_over is not None:
            del self._numbers[taken_over]
        self._numbers[key] = (weakref.ref(file), number)
        return number

    def _least_lately_used(self) -> int | None:
        """Of those that the message does not refer to."""
        for key, (_, number) in self._numbers.items():
            if number not in self._in_message:
                return key
        return None


class MappedFiles:
    """The worker's end of these: each file is mapped once."""

    def __init__(self) -> None:
        self._files: dict[int, Segment] = {}

    def receive(self, number: int, fd: int) -> None:
        if not 1 <= number <= _PLACED_FILES:
            raise ProtocolError(f"there is no attached file {number}")
        self._files[number] = Segment.receive(fd)

    def view(self, described: Described, sequence: int) -> np.ndarray:
        segment = self._files.get(described.attached)
        if segment is None:
            raise ProtocolError(f"there is no attached file {described.attached}")
        return read(described, segment.memory, segment.size)

    def close(self) -> None:
        self._files.clear()


class ResultFiles:
    """The worker's end: large results go into files that the caller may keep."""

    def __init__(self, callers_words: memoryview) -> None:
        self._words = callers_words
        self._files: list[_ResultFile | None] = [None] * RESULT_FILES
        self._next = 0
        self.has_files = False
        self.sequence = 0  # of the answer that is being written

    def wants(self, arrays: Sequence[Any]) -> bool:
        return any(array.nbytes >= HANDED_OVER_AT_LEAST for array in arrays)

    def begin(self) -> None:
        """The sequence tells."""

    def attach(self, block: Block, hand_over: HandOver) -> bool:
        if block.nbytes < HANDED_OVER_AT_LEAST or block.text is not None:
            return False
        place = self._best_place(block.nbytes)
        if place is None:
            return False  # this answer has taken them all
        file = self._files[place]
        if file is None or not self._is_free(place, file) or not file.fits(block.nbytes):
            segment, fd = Segment.create(block.nbytes)
            try:
                hand_over(fd, place + 1)
            finally:
                os.close(fd)
            self._files[place] = file = _ResultFile(segment)
            self.has_files = True
        file.answer = self.sequence
        block.attached = place + 1
        view = np.ndarray(block.shape, block.dtype, buffer=file.segment.memory)
        write(view, block.array)
        return True

    def tidy(self) -> None:
        """Give up files that were not needed for a while."""
        for place, file in enumerate(self._files):
            if file is not None and file.answer + _PATIENCE < self.sequence:
                self._files[place] = None
        self.has_files = any(self._files)

    def _is_free(self, place: int, file: _ResultFile) -> bool:
        return bool(self._words[RELEASED + place] == file.answer)

    def _best_place(self, nbytes: int) -> int | None:
        """A file that is free and of the right size; else a place that has none, or a free one, or
        one whose file is the caller's from now on."""
        best: tuple[int, int] | None = None
        for i in range(RESULT_FILES):
            place = (self._next + i) % RESULT_FILES
            file = self._files[place]
            if file is None:
                rank = 1
            elif file.answer == self.sequence:
                continue
            elif not self._is_free(place, file):
                rank = 3
            else:
                rank = 0 if file.fits(nbytes) else 2
            if best is None or rank < best[0]:
                best = (rank, place)
        if best is None:
            return None
        self._next = (best[1] + 1) % RESULT_FILES
        return best[1]


class _ResultFile:
    __slots__ = ("answer", "segment")

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.answer = 0  # the last that it was handed over with

    def fits(self, nbytes: int) -> bool:
        return nbytes <= self.segment.size <= 2 * nbytes


class HandedOverFiles:
    """The caller's end of these: each result is a private mapping of its file.

    Private, so that what the user writes into a result is seen by no one, in forks neither.
    """

    def __init__(self, words: memoryview) -> None:
        self._words: memoryview | None = words
        self._files: dict[int, tuple[int, int]] = {}  # number to descriptor and size
        self._latest: dict[int, int] = {}  # number to the answer that was in it last
        self.tidy_at = _NEVER  # the answer with which one of them may have been given up

    def receive(self, number: int, fd: int) -> None:
        if not 1 <= number <= RESULT_FILES:
            raise ProtocolError(f"there is no attached file {number}")
        size = checked_size(fd)
        before = self._files.get(number)
        self._files[number] = (os.dup(fd), size)
        self._latest.pop(number, None)
        if before is not None:
            os.close(before[0])

    def view(self, described: Described, sequence: int) -> np.ndarray:
        number = described.attached
        file = self._files.get(number)
        if file is None or described.dtype is None or described.offset:
            raise ProtocolError(f"no result can be in the attached file {number}")
        fd, size = file
        if described.nbytes > size:
            raise ProtocolError("an array reaches beyond the memory")
        self._latest[number] = sequence
        self.tidy_at = min(self.tidy_at, _given_up_by(sequence))
        result = Result(fd, described.nbytes, self, number, sequence)
        return result.array(0, described.shape, described.dtype)

    def release(self, number: int, sequence: int) -> None:
        """The result of that answer was garbage-collected."""
        words = self._words
        if words is not None:
            words[RELEASED + number - 1] = sequence

    def tidy(self, sequence: int) -> None:
        """Close what the worker has given up: else its memory would stay, and count for nobody."""
        for number, answer in list(self._latest.items()):
            if _given_up_by(answer) <= sequence:
                del self._latest[number]
                file = self._files.pop(number, None)
                if file is not None:
                    os.close(file[0])
        self.tidy_at = min(map(_given_up_by, self._latest.values()), default=_NEVER)

    def duplicate(self, number: int, sequence: int) -> int | None:
        """Another descriptor of the file of that answer; None if it has another file since."""
        file = self._files.get(number)
        is_latest = self._latest.get(number) == sequence
        return None if file is None or not is_latest else os.dup(file[0])

    def close(self) -> None:
        """Give back the descriptors. Results stay."""
        self._words = None
        files, self._files = self._files, {}
        for fd, _ in files.values():
            os.close(fd)


def _given_up_by(answer: int) -> int:
    """By which answer the worker has given up a file that it last used with this one. It looks
    after each answer, so that the next one tells."""
    return answer + _PATIENCE + 2


def handed_over(array: np.ndarray) -> Result | None:
    """What keeps the file of a whole result; None if it does not lie in one."""
    base: Any = array.base
    while base is not None and type(base) is not Result:
        base = base.obj if type(base) is memoryview else getattr(base, "base", None)
    return base if base is not None and address_of(array) == base.address else None


class Result(Mapping):
    """Keeps the file of one result; when it is collected, the worker uses the file again, unless a
    fork has it too, which would see what is written there."""

    __slots__ = ("_files", "_number", "_sequence")

    def __init__(
        self, fd: int, size: int, files: HandedOverFiles, number: int, sequence: int
    ) -> None:
        super().__init__(fd, size, private=True)
        self._files = weakref.ref(files)
        self._number = number
        self._sequence = sequence

    def duplicate(self) -> int | None:
        """Another descriptor of the file, while the worker is there."""
        files = self._files()
        return None if files is None else files.duplicate(self._number, self._sequence)

    def keep(self) -> None:
        """Have the file used for no other result: the worker does not hear that it is free."""
        self._sequence = 0

    def __del__(self, *_: Any) -> None:
        super().__del__()
        if self.size:
            files = self._files()
            if files is not None and self._sequence and not self.is_in_a_fork:
                files.release(self._number, self._sequence)


__all__ = [
    "Attached",
    "Attacher",
    "HandedOverFiles",
    "MappedFiles",
    "PlacedFiles",
    "ResultFiles",
    "SegmentError",
]
