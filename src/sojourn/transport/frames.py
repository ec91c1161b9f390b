"""Whole messages with descriptors over a Unix socket that keeps message boundaries.

A message that is too large for a socket (an environment of megabytes) travels in a memory file.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")
MAX_DESCRIPTORS = 16
_MAX_BYTES = 2**16
_IN_MEMORY = b"\xc1"  # a byte that never begins a msgpack message
_MAX_MEMORY_BYTES = 2**26
_FD = struct.Struct("i")


class OutOfDescriptors(OSError, Generic[T]):
    """Descriptors of a message are lost: this process may not open more files."""

    def __init__(self, message: T) -> None:
        super().__init__(errno.EMFILE, os.strerror(errno.EMFILE))
        self.message = message


def pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(sock: socket.socket, message: Any, fds: list[int] | None = None) -> None:
    """Send one message; the descriptors are duplicated in transit and stay yours."""
    payload = msgspec.msgpack.encode(message)
    if len(payload) > _MAX_BYTES:
        _send_in_memory(sock, payload, fds or [])
    elif fds:
        socket.send_fds(sock, [payload], fds)
    else:
        sock.send(payload)


def receive(
    sock: socket.socket, decoder: msgspec.msgpack.Decoder[T], timeout: float | None = None
) -> tuple[T, list[int]]:
    """Return the next message and its descriptors. Raises EOFError when the peer has closed."""
    if timeout is not None:
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        if not poll.poll(timeout * 1000):
            raise TimeoutError
    payload, fds, flags = receive_fds(sock, _MAX_BYTES, MAX_DESCRIPTORS)
    try:
        if not payload:
            raise EOFError("the peer has closed the channel")
        if flags & socket.MSG_TRUNC:
            raise ValueError("a message came truncated")
        lost = flags & socket.MSG_CTRUNC
        if payload == _IN_MEMORY and fds:
            payload = _read_memory(fds.pop(0))
        message = decoder.decode(payload)
        if lost:
            raise OutOfDescriptors(message)
        return message, list(fds)
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise


def receive_fds(
    sock: socket.socket, size: int, most: int, flags: int = 0
) -> tuple[bytes, list[int], int]:
    """Return the bytes read, the descriptors that came with them, and the kernel's flags for both.

    Not `socket.recv_fds`, which accepts flags and ignores them: it would block on a peer that sends
    nothing, and programs started by this process would inherit the received descriptors.
    """
    room = socket.CMSG_SPACE(most * _FD.size)
    data, ancillary, flags, _ = sock.recvmsg(size, room, flags | socket.MSG_CMSG_CLOEXEC)
    fds: list[int] = []
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            whole = len(content) - len(content) % _FD.size
            fds += [fd for (fd,) in _FD.iter_unpack(content[:whole])]
    return data, fds, flags


def _send_in_memory(sock: socket.socket, payload: bytes, fds: list[int]) -> None:
    fd = os.memfd_create("sojourn-message", os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as memory:
            memory.write(payload)
        socket.send_fds(sock, [_IN_MEMORY], [fd, *fds])
    finally:
        os.close(fd)


def _read_memory(fd: int) -> bytes:
    try:
        size = os.fstat(fd).st_size
        if size > _MAX_MEMORY_BYTES:
            raise ValueError(f"a message of {size} bytes is impossible")
        with open(fd, "rb", closefd=False) as memory:
            memory.seek(0)
            return memory.read(size)
    finally:
        os.close(fd)
