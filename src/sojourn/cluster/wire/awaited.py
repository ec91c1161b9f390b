"""Both ends for an event loop: any number of concurrent requests over one connection."""

from __future__ import annotations

import asyncio
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from sojourn.cluster.wire import frames
from sojourn.cluster.wire.proving import Handshake
from sojourn.cluster.wire.sharing import Sharing
from sojourn.cluster.wire.words import Opened, Place, Released
from sojourn.transport.placed import empty

_BUFFER_BYTES = 256 * 2**10
_PLACED_BYTES = 256 * 2**10
# TCP keepalive: the first probe after ten silent seconds, then every five, three in all.
_KEPT_ALIVE = (
    ((socket.SOL_SOCKET, socket.SO_KEEPALIVE), 1),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPIDLE), 10),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPINTVL), 5),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPCNT), 3),
)


class FrameReader(asyncio.BufferedProtocol, ABC):
    """Assembles frames. Large arrays are received in their final memory; small ones are copied."""

    decoder: msgspec.msgpack.Decoder[Any]

    def __init__(self, handshake: Handshake) -> None:
        self.transport: asyncio.Transport | None = None
        self.handshake = handshake
        self._buffer = bytearray(_BUFFER_BYTES)
        self._begin = self._end = 0
        self._head: Any = None
        self._body = np.empty(0, np.uint8)
        self._filled = 0
        self._is_aborted = False
        self.sharing = Sharing()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if self._is_aborted:
            transport.abort()
            return
        self.sharing = Sharing.with_peer(transport.get_extra_info("socket"))
        self.begin()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._head is not None:
            return self._body.data[self._filled :]
        return memoryview(self._buffer)[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        try:
            if self._head is not None:
                self._filled += nbytes
                self._finish_if_whole()
            else:
                self._end += nbytes
                self._take()
        except frames.BrokenFrame as error:
            self.broken(error)

    def _take(self) -> None:
        while self._head is None:
            data = memoryview(self._buffer)[self._begin : self._end]
            if not self.handshake.is_proven:
                needed = self.handshake.needed_bytes
                if len(data) < needed:
                    break
                self._begin += needed
                self._prove(bytes(data[:needed]))
                continue
            if len(data) < frames.PREFIX.size:
                break
            head_bytes, body_bytes = frames.lengths(data)
            whole = frames.PREFIX.size + head_bytes
            if len(data) < whole:
                self._make_room(whole)
                break
            self._head = frames.unpack_head(self.decoder, data[frames.PREFIX.size : whole])
            self._body = self.room_for(body_bytes)
            self._filled = min(len(data) - whole, body_bytes)
            self._body[: self._filled] = np.frombuffer(data, np.uint8, self._filled, whole)
            self._begin += whole + self._filled
            self._finish_if_whole()
        if self._begin == self._end:
            self._begin = self._end = 0
        elif self._end == len(self._buffer):
            self._make_room(self._end - self._begin)

    def _prove(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(self.handshake.take(data))
        if self.handshake.is_proven:
            self.proven()

    def _make_room(self, whole: int) -> None:
        """Make room for a frame: move it to the front, into a larger buffer if necessary."""
        rest = self._buffer[self._begin : self._end]
        if whole + _BUFFER_BYTES // 2 > len(self._buffer):
            self._buffer = bytearray(whole + _BUFFER_BYTES)
        self._buffer[: len(rest)] = rest
        self._begin, self._end = 0, len(rest)

    def _finish_if_whole(self) -> None:
        if self._filled == len(self._body):
            head, body, self._head = self._head, self._body, None
            self._body = np.empty(0, np.uint8)
            arrays = frames.unpack_arrays(head.arrays, body, head.places, self.opener())
            self.take(head, arrays)

    @property
    def is_open(self) -> bool:
        return self.transport is not None and not self.transport.is_closing()

    def send(
        self,
        number: int,
        body: Any,
        arrays: Sequence[np.ndarray] = (),
        places: Sequence[Place] = (),
    ) -> None:
        if self.transport is not None and self.is_open:
            self.transport.writelines(frames.pack(number, body, arrays, places))

    def broken(self, error: Exception) -> None:
        self.abort()

    def abort(self) -> None:
        """Close the connection at once, even if it is still being established."""
        self._is_aborted = True
        if self.transport is not None:
            self.transport.abort()

    # Overridden by the two ends.

    def room_for(self, size: int) -> np.ndarray:
        """Return memory for the arrays of a frame."""
        return np.empty(size, np.uint8)

    @abstractmethod
    def opener(self) -> frames.Opener:
        """Return the function that reads arrays that are not in their frame."""

    @abstractmethod
    def begin(self) -> None: ...

    def proven(self) -> None:
        """Called once the other end is authenticated."""

    @abstractmethod
    def take(self, head: Any, arrays: list[np.ndarray]) -> None: ...


class AgentEnd(FrameReader):
    """The agent's end: passes requests on once the caller is authenticated."""

    decoder = frames.REQUESTS

    def __init__(self, token: bytes, serve: Callable[..., None], lost: Callable[..., None]) -> None:
        super().__init__(Handshake(token, is_agent=True))
        self._serve = serve
        self._lost = lost
        self._last: np.ndarray | None = None
        self._references = 0

    def begin(self) -> None:
        """Enable TCP keepalive, so that the kernel detects a caller whose machine is lost."""
        assert self.transport is not None
        connection = self.transport.get_extra_info("socket")
        if connection is not None and connection.family != socket.AF_UNIX:
            for option, value in _KEPT_ALIVE:
                connection.setsockopt(*option, value)

    def room_for(self, size: int) -> np.ndarray:
        """Return memory from which a worker reads large arrays without another copy."""
        if size < _PLACED_BYTES:
            return super().room_for(size)
        # Reuse the last memory if nothing else refers to it: its pages are already mapped. Views
        # refer to the base of their array, not to the array.
        last = self._last
        if last is None or len(last) != size or sys.getrefcount(last.base) != self._references:
            last = self._last = empty(size, np.uint8)
            self._references = sys.getrefcount(last.base)
        return last[:]

    def opener(self) -> frames.Opener:
        return self.sharing.asked

    def take(self, head: Any, arrays: list[np.ndarray]) -> None:
        body = head.body
        if type(body) is Opened:
            self.sharing.has_opened(body.number)
        elif type(body) is Released:
            self.sharing.has_released(body.files)
        else:
            self._serve(self, head.number, body, arrays)

    def answer(self, number: int, body: Any, arrays: Sequence[np.ndarray]) -> None:
        """Send the answer to a request. Large results are handed over as files where possible."""
        if self.is_open:
            self.send(number, body, arrays, self.sharing.answer(number, arrays))

    def connection_lost(self, error: Exception | None) -> None:
        self.sharing.close()
        self._lost(self)


class CallerEnd(FrameReader):
    """A caller's end: its requests wait for their answers, which arrive in any order."""

    decoder = frames.REPLIES

    def __init__(self, token: bytes) -> None:
        super().__init__(Handshake(token, is_agent=False))
        self._number = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self.kept_by: Any = None  # closes it when its event loop ends
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self) -> None:
        assert self.transport is not None
        self.transport.write(self.handshake.hello)

    def proven(self) -> None:
        if not self.ready.done():  # otherwise the waiter has given up
            self.ready.set_result(None)

    async def ask(self, body: Any, arrays: Sequence[np.ndarray] = ()) -> tuple[Any, Any]:
        """Send a request and return its answer. Raises OSError if the connection breaks."""
        if not self.is_open:
            raise ConnectionResetError("the connection to the agent is closed")
        self._number += 1
        number = self._number
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        sharing = self.sharing
        try:
            places, copies = sharing.question(arrays)
            if released := sharing.take_released():
                self.send(0, Released(released))
            self.send(number, body, arrays, places)
            found = await answer
            sharing.free(copies)
            return found  # type: ignore[no-any-return]
        finally:
            self._waiting.pop(number, None)

    def opener(self) -> frames.Opener:
        return self.sharing.answered

    def take(self, head: Any, arrays: list[np.ndarray]) -> None:
        if head.places:
            self.send(0, Opened(head.number))
        waiting = self._waiting.get(head.number)
        if waiting is not None and not waiting.done():
            waiting.set_result((head.body, arrays))

    def broken(self, error: Exception) -> None:
        self._fail(error)
        super().broken(error)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(error or ConnectionResetError("the agent has closed the connection"))

    def _fail(self, error: Exception) -> None:
        self.sharing.close()
        for waiting in (self.ready, *self._waiting.values()):
            if not waiting.done():
                waiting.set_exception(error)
        if not self.ready.cancelled():
            self.ready.exception()  # marks it as retrieved: maybe nothing awaits it


async def stop_listening(server: asyncio.Server) -> None:
    """Close a server once its accepted sockets are connected: asyncio would leak these sockets.

    So first stop accepting, then let the loop finish the accepted connections.
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    server.close()
