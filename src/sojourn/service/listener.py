"""What all listeners share: accept connections, limit their number, and drain them at the end."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from sojourn.service.addresses import listening, name_of
from sojourn.service.greeting import Greeting
from sojourn.service.http.limits import Common

_LOOK_SECONDS = 0.5
_BACKLOG = 1024


class Client(Protocol):
    """A connection."""

    def look(self, now: float) -> None:
        """Disconnect the client if it is too slow."""

    def drain(self) -> None:
        """Close once the requests that have begun are answered."""

    def abort(self) -> None:
        """Close the connection at once."""

    @property
    def unread_bytes(self) -> int:
        """Bytes of answers that the client has not read yet."""


C = TypeVar("C", bound=Client)


class Listener(Generic[C]):
    """Listens at `address`, such as `127.0.0.1:8501`, from `start` to `stop`."""

    def __init__(
        self,
        address: str,
        common: Common,
        tls: ssl.SSLContext | None,
        connection: Callable[[], C],
        look: Callable[[float], None] | None = None,
    ) -> None:
        """`connection` creates a connection; `look` is called at each periodic check."""
        self._address = address
        self._common = common
        self._tls = tls
        self._connection = connection
        self._look_too = look
        self._server: asyncio.AbstractServer | Greeting | None = None
        self.connections: set[C] = set()
        self._looking: asyncio.TimerHandle | None = None
        self._everybody_left: asyncio.Event | None = None

    async def start(self) -> str:
        """Start listening; return the address, with the port that was picked."""
        bound = listening(self._address)
        try:
            if self._tls is None:
                self._server = await asyncio.get_running_loop().create_server(
                    self._connection,  # type: ignore[arg-type]
                    sock=bound,
                    backlog=_BACKLOG,
                )
            else:
                bound.listen(_BACKLOG)
                self._server = Greeting(bound, self._greet, self._has_room)
        except BaseException:
            bound.close()
            raise
        self._look()
        return name_of(bound)

    async def stop(self, grace: float) -> None:
        """Accept no more requests, and give those under way `grace` seconds."""
        if self._server is None:
            return
        await asyncio.sleep(0)  # accept the clients that have already connected
        self._server.close()
        if self._everybody_left is None:  # else a stop with a longer grace may be under way
            self._everybody_left = asyncio.Event()
        for connection in list(self.connections):
            connection.drain()
        if self.connections:
            try:
                await asyncio.wait_for(self._everybody_left.wait(), grace)
            except (TimeoutError, asyncio.TimeoutError):
                pass
        for connection in list(self.connections):
            connection.abort()
        while self.connections:
            await asyncio.sleep(0)
        await self._server.wait_closed()
        if self._looking is not None:
            self._looking.cancel()

    def _has_room(self, greeted: int) -> bool:
        """Whether one more client fits, beside the handshakes under way."""
        return len(self.connections) + greeted < self._common.limits.connections

    async def _greet(self, client: socket.socket) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(
            self._connection,  # type: ignore[type-var]
            client,
            ssl=self._tls,
            ssl_handshake_timeout=self._common.limits.header_seconds,
        )

    def welcome(self, connection: C) -> bool:
        """Register a new connection. Returns whether there is room for it; if not, it must
        close."""
        self.connections.add(connection)
        return len(self.connections) <= self._common.limits.connections

    def left(self, connection: C) -> None:
        """Remove a connection that has closed."""
        self.connections.discard(connection)
        if self._everybody_left is not None and not self.connections:
            self._everybody_left.set()

    def _look(self) -> None:
        self._common.now = now = time.monotonic()
        unread = 0
        for connection in list(self.connections):
            connection.look(now)
            unread += connection.unread_bytes
        self._common.unread_bytes = unread
        if self._look_too is not None:
            self._look_too(now)
        self._looking = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)
