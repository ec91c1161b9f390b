"""A piece of shared memory without a name: it vanishes with the last process that maps it.

Sealed against shrinking, because a peer that shrinks a mapping kills its readers by SIGBUS.
A segment received from a peer is checked before it is mapped.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os

from sojourn.values import format_bytes

# Not in the fcntl module of every Python we support.
F_ADD_SEALS = 1033
F_GET_SEALS = 1034
F_SEAL_SEAL = 0x0001
F_SEAL_SHRINK = 0x0002
F_SEAL_GROW = 0x0004

PAGE = mmap.PAGESIZE


class SegmentError(Exception):
    """The peer's segment must not be mapped."""


class Segment:
    """One mapping. It lives until nothing refers to it or to an array made from it."""

    __slots__ = ("memory", "size")

    def __init__(self, memory: mmap.mmap, size: int) -> None:
        self.memory = memory
        self.size = size

    @classmethod
    def create(cls, size: int) -> tuple[Segment, int]:
        """Return a new segment and the descriptor for the peer, which the caller must close."""
        fd = sealed_file(size)
        try:
            size = os.fstat(fd).st_size
            return cls(mmap.mmap(fd, size), size), fd
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def receive(cls, fd: int, *, writable: bool = False, most_bytes: int | None = None) -> Segment:
        """Map a segment that the peer made, after checking that it cannot be shrunk.

        `most_bytes`: a large empty segment costs the peer nothing, but costs us if we copy it.
        """
        size = checked_size(fd)
        if most_bytes is not None and size > most_bytes:
            raise SegmentError(
                f"the peer's memory has {format_bytes(size)}, and {format_bytes(most_bytes)} are "
                "the most it may send"
            )
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        return cls(mmap.mmap(fd, size, access=access), size)


def sealed_file(size: int) -> int:
    """Return the descriptor of a new memory file of at least this size, which cannot be resized."""
    size = max(PAGE, -(-size // PAGE) * PAGE)
    fd = os.memfd_create("sojourn", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        _grow(fd, size)
        fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
        return fd
    except BaseException:
        os.close(fd)
        raise


def checked_size(fd: int) -> int:
    """Return the size of a peer's memory file, after checking that it cannot shrink."""
    try:
        seals = fcntl.fcntl(fd, F_GET_SEALS)
    except OSError as error:
        raise SegmentError(f"not a sealable memory file: {error}") from None
    if not seals & F_SEAL_SHRINK:
        raise SegmentError("the peer's memory is not sealed against shrinking")
    size = os.fstat(fd).st_size
    if size < PAGE:
        raise SegmentError(f"the peer's memory has only {size} bytes")
    return size


def _grow(fd: int, size: int) -> None:
    try:
        os.ftruncate(fd, size)
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        raise MemoryError(
            f"a message of {format_bytes(size)} is more than this process may send"
        ) from None
