"""Arrays that lie outside their message, in a memory file of their own that is handed over once.

Towards a worker these are the caller's placed arrays: only their location crosses. Towards a client
they are large results: the caller receives the memory itself instead of a copy, and the worker
reuses a file once the caller has released the result in it. While the caller keeps the result, the
worker makes another file, so that files do not grow with the results that a caller keeps.
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

# In bytes. Below these sizes, writing a new header costs more than copying the array.
PLACED_AT_LEAST = 128 * 2**10
HANDED_OVER_AT_LEAST = 512 * 2**10
_PLACED_FILES = 16
# Both sides give up a result's file that was not needed for this many answers.
_PATIENCE = 64
_NEVER = 2**63
HandOver = Callable[[int, int], None]  # takes a descriptor and the file's number


class Attacher(Protocol):
    """The writing end."""

    def wants(self, arrays: Sequence[Any]) -> bool:
        """Return whether at least one of the arrays would be attached."""

    def begin(self) -> None:
        """Start another message: the numbers of the files in the last one may be reused."""

    def attach(self, block: Block, hand_over: HandOver) -> bool:
        """Place the block outside the message, if that pays."""


class Attached(Protocol):
    """The reading end."""

    def receive(self, number: int, fd: int) -> None:
        """Map a file that arrived; this number refers to it from now on."""

    def view(self, described: Described, sequence: int) -> np.ndarray:
        """Return the array that lies in one of the files."""

    def close(self) -> None:
        """Close the descriptors."""


class PlacedFiles:
    """The caller's end for requests: arrays that the user has placed are not copied."""

    def __init__(self) -> None:
        # The number of each file, least recently used first. The reader's mapping keeps no memory
        # alive: a file's memory is freed with its last array. Only a file that a fork shares keeps
        # its memory, until its number is reused for another file.
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
        """Return the file's number; None if this message already uses all numbers."""
        key = id(file)
        known = self._numbers.get(key)
        if known is not None and known[0]() is file:
            self._numbers.move_to_end(key)
            return known[1]
        taken_over = None if known is None else key  # a freed file had the same id
        if known is None and len(self._numbers) == _PLACED_FILES:
            taken_over = self._least_lately_used()
            if taken_over is None:
                return None
        number = len(self._numbers) + 1 if taken_over is None else self._numbers[taken_over][1]
        hand_over(file.fd, number)  # may fail: nothing has been changed before this
        if taken_over is not None:
            del self._numbers[taken_over]
        self._numbers[key] = (weakref.ref(file), number)
        return number

    def _least_lately_used(self) -> int | None:
        """Return the key of the least recently used file that the message does not refer to."""
        for key, (_, number) in self._numbers.items():
            if number not in self._in_message:
                return key
        return None


class MappedFiles:
    """The worker's end for placed arrays: each file is mapped once."""

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
    """The worker's end for results: large results go into files that the caller may keep."""

    def __init__(self, callers_words: memoryview) -> None:
        self._words = callers_words
        self._files: list[_ResultFile | None] = [None] * RESULT_FILES
        self._next = 0
        self.has_files = False
        self.sequence = 0  # of the answer that is being written

    def wants(self, arrays: Sequence[Any]) -> bool:
        return any(array.nbytes >= HANDED_OVER_AT_LEAST for array in arrays)

    def begin(self) -> None:
        """Do nothing: `sequence` identifies the message."""

    def attach(self, block: Block, hand_over: HandOver) -> bool:
        if block.nbytes < HANDED_OVER_AT_LEAST or block.text is not None:
            return False
        place = self._best_place(block.nbytes)
        if place is None:
            return False  # this answer uses all the files
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
        """Give up files that were not needed for `_PATIENCE` answers."""
        for place, file in enumerate(self._files):
            if file is not None and file.answer + _PATIENCE < self.sequence:
                self._files[place] = None
        self.has_files = any(self._files)

    def _is_free(self, place: int, file: _ResultFile) -> bool:
        return bool(self._words[RELEASED + place] == file.answer)

    def _best_place(self, nbytes: int) -> int | None:
        """Choose a place: first one whose file is free and of the right size, then one without a
        file, then one whose file is free, then one whose file the caller keeps from now on."""
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
        self.answer = 0  # the last answer that this file was handed over with

    def fits(self, nbytes: int) -> bool:
        return nbytes <= self.segment.size <= 2 * nbytes


class HandedOverFiles:
    """The caller's end for results: each result is a private mapping of its file.

    Private, so that nobody else sees what the user writes into a result, not even a fork.
    """

    def __init__(self, words: memoryview) -> None:
        self._words: memoryview | None = words
        self._files: dict[int, tuple[int, int]] = {}  # number to descriptor and size
        self._latest: dict[int, int] = {}  # number to the answer that was in it last
        self.tidy_at = _NEVER  # the first answer at which the worker may have given up a file

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
        """Tell the worker that the result of that answer was garbage-collected."""
        words = self._words
        if words is not None:
            words[RELEASED + number - 1] = sequence

    def tidy(self, sequence: int) -> None:
        """Close the files that the worker has given up. Open, they would keep memory that no
        process is charged for."""
        for number, answer in list(self._latest.items()):
            if _given_up_by(answer) <= sequence:
                del self._latest[number]
                file = self._files.pop(number, None)
                if file is not None:
                    os.close(file[0])
        self.tidy_at = min(map(_given_up_by, self._latest.values()), default=_NEVER)

    def duplicate(self, number: int, sequence: int) -> int | None:
        """Duplicate the descriptor of that answer's file; None if it was replaced since."""
        file = self._files.get(number)
        is_latest = self._latest.get(number) == sequence
        return None if file is None or not is_latest else os.dup(file[0])

    def close(self) -> None:
        """Close the descriptors. Results stay valid."""
        self._words = None
        files, self._files = self._files, {}
        for fd, _ in files.values():
            os.close(fd)


def _given_up_by(answer: int) -> int:
    """Return the answer by which the worker has given up a file that it last used for `answer`. The
    worker checks after each answer, so only the next answer proves it."""
    return answer + _PATIENCE + 2


def handed_over(array: np.ndarray) -> Result | None:
    """Return the object that keeps the file of a whole result; None if the array is not one."""
    base: Any = array.base
    while base is not None and type(base) is not Result:
        base = base.obj if type(base) is memoryview else getattr(base, "base", None)
    return base if base is not None and address_of(array) == base.address else None


class Result(Mapping):
    """Keeps the file of one result. When it is garbage-collected, the worker may reuse the file,
    unless a fork shares it: the fork would see what is written there."""

    __slots__ = ("_files", "_number", "_sequence")

    def __init__(
        self, fd: int, size: int, files: HandedOverFiles, number: int, sequence: int
    ) -> None:
        super().__init__(fd, size, private=True)
        self._files = weakref.ref(files)
        self._number = number
        self._sequence = sequence

    def duplicate(self) -> int | None:
        """Duplicate the descriptor of the file, while the worker exists; None otherwise."""
        files = self._files()
        return None if files is None else files.duplicate(self._number, self._sequence)

    def keep(self) -> None:
        """Reserve the file for this result: the worker is never notified that it is free."""
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
