"""The last lines of a server's log, kept in memory for `sojourn logs`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator

KEPT_LINES = 2000
_MOST_BEHIND = 1000  # lines that a slow reader may be behind before it misses some


class LogLines(logging.Handler):
    """Keeps what is logged, and passes it on to those who follow. Any thread may log."""

    def __init__(self) -> None:
        super().__init__()
        self._loop: asyncio.AbstractEventLoop | None = None  # of those who follow
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._followers: set[asyncio.Queue[str | None]] = set()
        self._is_over = False

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        self._lines.append(line)
        if self._followers and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody reads
                self._loop.call_soon_threadsafe(self._pass_on, line)

    def end_following(self) -> None:
        """Let those who follow read what there is, and no more, also those who come to follow
        from now on: the server stops."""
        self._is_over = True
        self._pass_on(None)

    def last(self, count: int) -> list[str]:
        """The last so many lines."""
        lines = list(self._lines)
        return lines[max(0, len(lines) - count) :]

    async def follow(self, count: int) -> AsyncIterator[str]:
        """The last lines, then every new one, until the reader goes."""
        self._loop = asyncio.get_running_loop()
        queue: asyncio.Queue[str | None] = asyncio.Queue(_MOST_BEHIND)
        self._followers.add(queue)
        try:
            for line in self.last(count):
                yield line
            while not (self._is_over and queue.empty()) and (new := await queue.get()) is not None:
                yield new
        finally:
            self._followers.discard(queue)

    def _pass_on(self, line: str | None) -> None:
        for queue in self._followers:
            if queue.full():
                queue.get_nowait()  # the oldest
            queue.put_nowait(line)
