"""Accept clients of a TLS listener and do their handshakes.

An event loop's own server reports a client only after its handshake. Clients that never begin one
could use up all descriptors of the process, and no model could be opened any more.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

_PAUSE_SECONDS = 0.5  # after accept failed, for example for lack of descriptors
_log = logging.getLogger("sojourn.service")


class Greeting:
    """Accepts clients at a listening socket until it is closed. Belongs to the running loop."""

    def __init__(
        self,
        bound: socket.socket,
        greet: Callable[[socket.socket], Awaitable[None]],
        has_room: Callable[[int], bool],
    ) -> None:
        """`greet` does the handshake; `has_room` says whether one more client fits, given the
        number of handshakes under way."""
        self._bound = bound
        self._greet = greet
        self._has_room = has_room
        self._loop = asyncio.get_running_loop()
        self._greeted: set[asyncio.Task[None]] = set()
        self._again: asyncio.TimerHandle | None = None
        self._listen()

    def close(self) -> None:
        """Stop accepting, and drop the clients in their handshake: they have not sent a request
        yet."""
        if self._bound.fileno() >= 0:
            self._loop.remove_reader(self._bound)
            self._bound.close()
        if self._again is not None:
            self._again.cancel()
        for task in self._greeted:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until the handshakes have ended."""
        if self._greeted:
            await asyncio.wait(self._greeted)

    def _listen(self) -> None:
        self._loop.add_reader(self._bound, self._accept)

    def _accept(self) -> None:
        try:
            client, _ = self._bound.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # the client has already left
        except OSError as error:
            _log.warning("no client can be accepted: %s", error)
            self._loop.remove_reader(self._bound)
            self._again = self._loop.call_later(_PAUSE_SECONDS, self._listen)
            return
        if not self._has_room(len(self._greeted)):
            client.close()
            return
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(self._greeting_of(client))
        self._greeted.add(task)
        task.add_done_callback(self._greeted.discard)

    async def _greeting_of(self, client: socket.socket) -> None:
        try:
            await self._greet(client)
        except OSError as error:  # also TLS errors and timeouts: not a TLS client, or it has left
            _log.debug("a client was not greeted: %s", error)
