"""A caller's end for threads: one request at a time over one socket."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from sojourn.cluster.wire import frames
from sojourn.cluster.wire.proving import Handshake
from sojourn.cluster.wire.sharing import Sharing
from sojourn.cluster.wire.words import Opened, Released

_BUFFER_BYTES = 64 * 2**10


class Line:
    """A connection to an agent. After any exception it must not be used again."""

    def __init__(
        self, address: tuple[str, int], token: bytes, timeout: float, local: str = ""
    ) -> None:
        self._socket = connected(address, timeout, local)
        try:
            self._prove(token)
            self._sharing = Sharing.with_peer(self._socket)
        except BaseException:
            self._socket.close()
            raise
        self._buffer = bytearray(_BUFFER_BYTES)
        self._number = 0

    def _prove(self, token: bytes) -> None:
        handshake = Handshake(token, is_agent=False)
        self._socket.sendall(handshake.hello)
        while not handshake.is_proven:
            self._socket.sendall(handshake.take(self._exactly(handshake.needed_bytes)))

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            if not part:
                raise ConnectionResetError("the agent has closed the connection")
            data += part
        return data

    def ask(
        self, body: Any, arrays: Sequence[np.ndarray] = (), deadline: float | None = None
    ) -> tuple[Any, list[np.ndarray]]:
        """Send a request and return its answer. Raises TimeoutError at the deadline, OSError if the
        connection breaks."""
        self._number += 1
        self._limit(deadline)
        places, copies = self._sharing.question(arrays)
        buffers = frames.pack(self._number, body, arrays, places)
        if released := self._sharing.take_released():
            buffers = [*frames.pack(0, Released(released)), *buffers]
        self._send(buffers, deadline)
        while True:
            head, found = self._receive(deadline)
            if head.places:
                self._send(frames.pack(0, Opened(head.number)), deadline)
            if head.number == self._number:
                self._sharing.free(copies)
                return head.body, found

    def _send(self, buffers: list[Any], deadline: float | None) -> None:
        views = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
        while views:
            sent = self._socket.sendmsg(views[:64])
            while views and sent >= len(views[0]):
                sent -= len(views.pop(0))
            if views:
                views[0] = views[0][sent:]
                self._limit(deadline)

    def _receive(self, deadline: float | None) -> tuple[frames.ReplyHead, list[np.ndarray]]:
        view, have = memoryview(self._buffer), 0
        need = frames.PREFIX.size
        head_end = body_bytes = 0
        while have < need:
            have += self._into(view[have:], deadline)
            if not head_end and have >= frames.PREFIX.size:
                head_bytes, body_bytes = frames.lengths(view)
                need = head_end = frames.PREFIX.size + head_bytes
                if need > len(view):
                    self._buffer = bytearray(need + _BUFFER_BYTES)
                    self._buffer[:have] = view[:have]
                    view = memoryview(self._buffer)
        head = frames.unpack_head(frames.REPLIES, view[frames.PREFIX.size : head_end])
        body = np.empty(body_bytes, np.uint8)
        here = have - head_end
        if here > body_bytes:
            raise frames.BrokenFrame("the agent sent more than was asked for")
        body[:here] = np.frombuffer(view[head_end:have], np.uint8)
        target = body.data
        while here < body_bytes:
            here += self._into(target[here:], deadline)
        return head, frames.unpack_arrays(head.arrays, body, head.places, self._sharing.answered)

    def _into(self, view: memoryview, deadline: float | None) -> int:
        self._limit(deadline)
        count = self._socket.recv_into(view)
        if not count:
            raise ConnectionResetError("the agent has closed the connection")
        return count

    def _limit(self, deadline: float | None) -> None:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
        elif self._socket.gettimeout() is not None:
            self._socket.settimeout(None)

    def cut(self) -> None:
        """Shut down the socket from another thread: a thread that waits for an answer gets an
        error."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # already closed

    def close(self) -> None:
        self._socket.close()
        self._sharing.close()


def connected(address: tuple[str, int], timeout: float, local: str) -> socket.socket:
    """Connect to an agent: through its Unix socket if it is on this machine."""
    if local:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.settimeout(timeout)
            made.connect(f"\0{local}")
            return made
        except OSError:
            made.close()  # the agent is in another network namespace
    made = socket.create_connection(address, timeout)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made
