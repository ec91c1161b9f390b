"""Large arrays between two processes on one machine: share memory files instead of sending bytes.

The kernel reports the process at the other end of a Unix socket. A message names a descriptor of
the sender, which the receiver opens through `/proc`; the file must have the announced inode and be
sealed.
"""

from __future__ import annotations

import functools
import os
import socket
import struct
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from sojourn.cluster.wire.words import Place
from sojourn.transport import placed
from sojourn.transport.attachments import Result, handed_over
from sojourn.transport.mapping import Mapping
from sojourn.transport.segment import Segment, SegmentError, checked_size
from sojourn.values.dtypes import NUMBER_OF_DTYPE

SHARED_AT_LEAST = 256 * 2**10
_FILES = 16
_FREE = 4
_LENT = 64
_CREDENTIALS = struct.Struct("iII")


@functools.cache
def this_machine() -> str:
    """Return an id that is equal for processes that can open each other's files."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')} {os.geteuid()}"
    except OSError:
        return ""


class Sharing:
    """The sharing of one connection, until `close`. If the peer is on another machine, nothing is
    shared."""

    def __init__(self, pid: int = 0) -> None:
        self._pid = pid
        self._free: list[np.ndarray] = []  # reusable memory of earlier requests
        self._given: dict[int, list[int]] = {}  # by answer: descriptors for the peer to open
        self._lent: OrderedDict[int, Result] = OrderedDict()  # by inode, until the peer releases it
        self._released: deque[int] = deque()  # the peer's files, reported with the next request
        self._files: OrderedDict[int, placed.MemoryFile] = OrderedDict()  # of the peer, by inode

    @classmethod
    def with_peer(cls, connection: Any) -> Sharing:
        """Create the sharing with a socket's peer; it is disabled unless the peer is on this
        machine."""
        if connection is None or connection.family != socket.AF_UNIX:
            return cls()
        packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid = _CREDENTIALS.unpack(packed)[0]
        return cls(pid) if pid > 0 and os.access(f"/proc/{pid}/fd", os.X_OK) else cls()

    def _takes(self, array: np.ndarray) -> bool:
        is_large = array.nbytes >= SHARED_AT_LEAST and array.dtype in NUMBER_OF_DTYPE
        return is_large and self._pid > 0

    # -- sending -----------------------------------------------------------------------------------

    def question(self, arrays: Sequence[np.ndarray]) -> tuple[list[Place], list[np.ndarray]]:
        """Place large arrays where the peer can read them. Returns the places, and the memory that
        arrays were copied to, which `free` takes once the peer has answered."""
        places: list[Place] = []
        copies: list[np.ndarray] = []
        for index, array in enumerate(arrays):
            if not self._takes(array):
                continue
            file = placed.file_of(array) if array.flags.c_contiguous else None
            if file is None:
                memory = self._memory(array.nbytes)
                file = placed.file_of(memory)
                if file is None:
                    continue
                copies.append(memory)
                np.copyto(memory.view(array.dtype).reshape(array.shape), array)
                array = memory
            offset = placed.offset_in(file, array)
            places.append((index, file.fd, os.fstat(file.fd).st_ino, offset))
        return places, copies

    def _memory(self, size: int) -> np.ndarray:
        for at, memory in enumerate(self._free):
            if memory.nbytes == size:
                return self._free.pop(at)
        return placed.empty(size, np.uint8)

    def free(self, copies: list[np.ndarray]) -> None:
        """Reuse the memory of these copies: the peer has read them. Copies that are never passed
        here are freed once nothing reads them."""
        self._free = [*copies, *self._free][:_FREE]

    def answer(self, number: int, arrays: Sequence[np.ndarray]) -> list[Place]:
        """Lend the files that contain large results; results that are not in a file are copied to
        one."""
        places: list[Place] = []
        for index, array in enumerate(arrays):
            if not self._takes(array):
                continue
            result = handed_over(array) if array.flags.c_contiguous else None
            fd = None if result is None else result.duplicate()
            if fd is None:
                fd, result = _file_with(array), None
            self._given.setdefault(number, []).append(fd)
            inode = os.fstat(fd).st_ino
            if result is not None:
                self._lent[inode] = result
            places.append((index, fd, inode, 0))
        while len(self._lent) > _LENT:  # the peer keeps them: they become its own
            self._lent.popitem(last=False)[1].keep()
        return places

    def has_opened(self, number: int) -> None:
        """Close the descriptors of an answer: the peer has opened them."""
        for fd in self._given.pop(number, ()):
            os.close(fd)

    def has_released(self, inodes: Sequence[int]) -> None:
        """Take back files that the peer has released: the worker may reuse them."""
        for inode in inodes:
            self._lent.pop(inode, None)

    # -- receiving ---------------------------------------------------------------------------------

    def asked(self, place: Place, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """Return an array of a request. It is not copied when it is fed to a worker."""
        _, fd, inode, offset = place
        file = self._files.get(inode)
        if file is None:
            file = placed.MemoryFile.receive(self._open(fd, inode))
            self._files[inode] = file
            if len(self._files) > _FILES:
                self._files.popitem(last=False)
        self._files.move_to_end(inode)
        _check(offset, shape, dtype, file.size)
        return file.array(offset, shape, dtype)

    def answered(self, place: Place, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """Return a result array. Writes to it are private; once it is garbage-collected, the next
        request tells the sender."""
        _, fd, inode, offset = place
        opened = self._open(fd, inode)
        try:
            size = checked_size(opened)
            _check(offset, shape, dtype, size)
            return _Lent(opened, size, inode, self._released).array(offset, shape, dtype)
        finally:
            os.close(opened)

    def take_released(self) -> list[int]:
        """Return the inodes of results garbage-collected since the last call."""
        found = []
        while self._released:
            found.append(self._released.popleft())
        return found

    def _open(self, fd: int, inode: int) -> int:
        if not self._pid:
            raise SegmentError("the peer is not on this machine")
        opened = os.open(f"/proc/{self._pid}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
        if os.fstat(opened).st_ino != inode:
            os.close(opened)
            raise SegmentError("the peer's memory is not what it announced")
        return opened

    def close(self) -> None:
        for number in list(self._given):
            self.has_opened(number)
        for result in self._lent.values():
            result.keep()  # the peer may still use it
        self._lent.clear()
        self._free.clear()
        self._files.clear()


class _Lent(Mapping):
    """A private mapping of a file that a worker reuses once the mapping is garbage-collected."""

    __slots__ = ("_inode", "_released")

    def __init__(self, fd: int, size: int, inode: int, released: deque[int]) -> None:
        super().__init__(fd, size, private=True)
        self._inode = inode
        self._released = released

    def __del__(self, *_: Any) -> None:
        super().__del__()
        if self.size and not self.is_in_a_fork:
            self._released.append(self._inode)


def _file_with(array: np.ndarray) -> int:
    segment, fd = Segment.create(array.nbytes)
    np.copyto(np.ndarray(array.shape, array.dtype, buffer=segment.memory), array)
    return fd


def _check(offset: int, shape: tuple[int, ...], dtype: np.dtype[Any], size: int) -> None:
    need = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if offset < 0 or any(dim < 0 for dim in shape) or offset + need > size:
        raise SegmentError("an array reaches beyond the peer's memory")
