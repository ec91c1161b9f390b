"""Whole messages with descriptors over a Unix socket that keeps their boundaries."""

from __future__ import annotations

import os
import socket
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
MAX_DESCRIPTORS = 16
_MAX_BYTES = 2**20


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(sock: socket.socket, message: Any, fds: list[int] | None = None) -> None:
    """Send one message; the descriptors are duplicated on the way and stay yours."""
    payload = msgspec.msgpack.encode(message)
    if fds:
        socket.send_fds(sock, [payload], fds)
    else:
        sock.send(payload)


def receive(sock: socket.socket, decoder: msgspec.msgpack.Decoder[T]) -> tuple[T, list[int]]:
    """The next message and the descriptors that came with it. Raises EOFError at the end."""
    payload, fds, flags, _ = socket.recv_fds(sock, _MAX_BYTES, MAX_DESCRIPTORS)
    try:
        if not payload:
            raise EOFError("the peer has closed the channel")
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise ValueError("a message came truncated")
        return decoder.decode(payload), list(fds)
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise
