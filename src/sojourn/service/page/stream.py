"""Server-sent events: every client gets what has changed since it was last sent something.

There is no queue. A client that reads slowly misses what was between, and gets the newest; one that
has gone costs nothing from its next message on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

MOST_CLIENTS = 64
BEAT_SECONDS = 15.0  # a comment, so that proxies and both ends notice a dead connection


class Full(Exception):
    """There are as many clients as may be."""


class Stream:
    """The parts of what is shown, each with the number of its last change."""

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
        """Whether anybody looks."""
        return bool(self._clients)

    def put(self, name: str, body: bytes) -> None:
        """Show this JSON as part `name` from now on; if it is the same, nothing is sent."""
        before = self._parts.get(name)
        if before is None or before[1] != body:
            self._changes += 1
            self._parts[name] = (self._changes, body)
            for client in self._clients:
                client.set()

    def end(self) -> None:
        """The server stops: every client is let go."""
        self._is_over = True
        for client in self._clients:
            client.set()

    def client(self) -> AsyncIterator[bytes]:
        """What one client is sent, from now on: first everything. Raises Full."""
        if self._is_full:
            raise Full
        return self._messages()

    @property
    def _is_full(self) -> bool:
        return len(self._clients) >= self._most_clients or self._is_over

    async def _messages(self) -> AsyncIterator[bytes]:
        if self._is_full:  # only now: one whose client went before this would never be let go
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
