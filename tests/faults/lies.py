"""What a process that has turned against its peer can write into a lane.

Each lie is done to a lane after a message was put into its outbox, and before the peer is told of
it: `tell(lane, meta)`. It happens in a worker, so each brings along what it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Lie = Callable[[Any, bytes], None]


def header(at: int, layout: str, *values: int) -> Lie:
    """Other numbers where the first array is described."""

    def tell(lane: Any, meta: bytes) -> None:
        import struct

        first = struct.calcsize("<II") + len(meta)
        struct.pack_into(layout, lane.outbox._buffer, first + at, *values)

    return tell


def word(name: str, value: int) -> Lie:
    """Another number beside the sequence."""

    def tell(lane: Any, meta: bytes) -> None:
        from sojourn.transport import messages

        lane._mine[messages.LAYOUT] = 10**6
        lane._mine[getattr(messages, name)] = value

    return tell


def memory(size: int, seals: bool, count: int) -> Lie:
    """Other memory is announced, and this many descriptors of some come with it."""

    def tell(lane: Any, meta: bytes) -> None:
        import fcntl
        import os
        import socket

        from sojourn.transport import messages, segment

        fd = os.memfd_create("hostile", os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size)
        if seals:
            fcntl.fcntl(fd, segment.F_ADD_SEALS, segment.F_SEAL_SHRINK)
        if count:
            socket.send_fds(lane._channel, [bytes([messages.MAIN])], [fd] * count)
        lane._mine[messages.GENERATION] += 1
        if not seals:
            os.ftruncate(fd, 0)  # whoever has mapped it dies of reading it

    return tell


def flood(lane: Any, meta: bytes) -> None:
    """Memory comes for as long as the peer takes it."""
    import socket
    import threading

    from sojourn.transport import messages, segment

    fd = segment.sealed_file(4096)

    def send() -> None:
        while True:
            socket.send_fds(lane._channel, [bytes([messages.MAIN])], [fd])

    threading.Thread(target=send, daemon=True).start()
    lane._mine[messages.GENERATION] = 2**40


# By name: what is told, and what the one who refuses it says.
LIES: dict[str, tuple[Lie, str]] = {
    "a dtype that is none": (header(0, "<H", 999), "no dtype number 999"),
    "a rank too large": (header(2, "<H", 200), "a rank of 200"),
    "an offset beyond the memory": (header(8, "<Q", 2**62), "beyond the memory"),
    "a size beyond the memory": (
        header(16, "<Q", 2**63),
        "does not have 9223372036854775808 bytes",
    ),
    "a negative dimension": (header(24, "<q", -4), "a dimension of -4"),
    "shape times size overflows": (header(24, "<qq", 2**62, 4), "does not have 32 bytes"),
    "and gives nothing": (header(24, "<qq", 2**32, 2**32), "does not have 32 bytes"),
    "a header too long": (word("HEADER_BYTES", 2**40), f"a header of {2**40} bytes"),
    "a layout that was never sent": (word("HEADER_BYTES", 0), "a layout that it never sent"),
    "a generation ages ahead": (word("GENERATION", 2**63), "memory did not come"),
    "a generation of before": (word("GENERATION", 0), "memory did not come"),
    "memory that shrinks": (memory(2**20, False, 1), "not sealed against shrinking"),
    "memory of no size": (memory(8, True, 1), "only 8 bytes"),
    "three descriptors": (memory(2**20, True, 3), "expected one descriptor with the memory, got 3"),
    "two hundred descriptors": (memory(2**20, True, 200), "expected one descriptor"),
    "no descriptor": (memory(2**20, True, 0), "memory did not come"),
    "memory without end": (flood, "memory did not come"),
}
