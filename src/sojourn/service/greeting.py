"""Clients of a door with TLS, from their coming to the end of their handshake.

A loop's own server tells of a client when its handshake is over. Those that never begin one would
be as many as the process has descriptors, and no model could be opened any more.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

_PAUSE_SECONDS = 0.5  # when there is nothing to accept with
_log = logging.getLogger("sojourn.service")


class Greeting:
    """Accepts at a socket that listens, until it is closed. Belongs to the running loop."""

    def __init__(
        self,
        bound: socket.socket,
        greet: Callable[[socket.socket], Awaitable[None]],
        has_room: Callable[[int], bool],
    ) -> None:
        """`greet` is asked to do the handshake; `has_room` whether one more client may come, beside
        so many that are greeted."""
        self._bound = bound
        self._greet = greet
        self._has_room = has_room
        self._loop = asyncio.get_running_loop()
        self._greeted: set[asyncio.Task[None]] = set()
        self._again: asyncio.TimerHandle | None = None
        self._listen()

    def close(self) -> None:
        """Accept no more, and let those go that are still greeted: they have asked nothing yet."""
        if self._bound.fileno() >= 0:
            self._loop.remove_reader(self._bound)
            self._bound.close()
        if self._again is not None:
            self._again.cancel()
        for task in self._greeted:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until they are gone."""
        if self._greeted:
            await asyncio.wait(self._greeted)

    def _listen(self) -> None:
        self._loop.add_reader(self._bound, self._accept)

    def _accept(self) -> None:
        try:
            client, _ = self._bound.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # it has left again
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
        except OSError as error:  # of TLS and of time too: a stranger, or it has left
            _log.debug("a client was not greeted: %s", error)
