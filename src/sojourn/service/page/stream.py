"""Server-sent events: every client receives what has changed since its last message.

There is no queue. A client that reads slowly misses intermediate states, and receives the newest;
one that has disconnected is removed at its next message.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

MOST_CLIENTS = 64
BEAT_SECONDS = 15.0  # between comments, by which proxies and both ends notice a dead connection


class Full(Exception):
    """The limit of clients is reached."""


class Stream:
    """The parts of the shown state, each with the number of its last change."""

    def __init__(
        self, most_clients: int = MOST_CLIENTS, beat_seconds: float = BEAT_SECONDS
    ) -> None:
        self._parts: dict[str, tuple[int, bytes]] = {}
        self._changes = 0
        self._clients: set[asyncio.Event] = set()
        self._most_clients = most_clients
        self._beat_seconds = beat_seconds
        self._is_over = False

    @property
    def has_clients(self) -> bool:
        """Whether any client is connected."""
        return bool(self._clients)

    def put(self, name: str, body: bytes) -> None:
        """Set the JSON of part `name`; it is sent only if it has changed."""
        before = self._parts.get(name)
        if before is None or before[1] != body:
            self._changes += 1
            self._parts[name] = (self._changes, body)
            for client in self._clients:
                client.set()

    def end(self) -> None:
        """Disconnect every client, because the server stops."""
        self._is_over = True
        for client in self._clients:
            client.set()

    def client(self) -> AsyncIterator[bytes]:
        """The messages for one new client: first all parts, then the changes. Raises Full."""
        if self._is_full:
            raise Full
        return self._messages()

    @property
    def _is_full(self) -> bool:
        return len(self._clients) >= self._most_clients or self._is_over

    async def _messages(self) -> AsyncIterator[bytes]:
        # The client is counted only here: if it had left before the generator ran, the `finally`
        # below would never remove it.
        if self._is_full:
            return
        sent = 0
        changed = asyncio.Event()
        changed.set()
        self._clients.add(changed)
        try:
            yield b"retry: 2000\n\n"
            while not self._is_over:
                try:
                    await asyncio.wait_for(changed.wait(), self._beat_seconds)
                except (TimeoutError, asyncio.TimeoutError):
                    yield b": still here\n\n"
                    continue
                changed.clear()
                newer = [item for item in self._parts.items() if item[1][0] > sent]
                sent = self._changes
                if newer:
                    yield b"".join(
                        b"event: %s\ndata: %s\n\n" % (name.encode(), body)
                        for name, (_, body) in newer
                    )
        finally:
            self._clients.discard(changed)
