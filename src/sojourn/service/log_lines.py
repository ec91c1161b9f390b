"""A server's log: written to standard error, with the last lines kept in memory for `sojourn
logs`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Any

from sojourn.process.plain import plain
from sojourn.service.access_log import timestamp
from sojourn.service.settings import Settings

KEPT_LINES = 2000
_MOST_BEHIND = 1000  # lines that a slow follower may lag behind before it misses some


class LogLines(logging.Handler):
    """Keeps the latest log lines and passes new ones to followers. Any thread may log."""

    def __init__(self) -> None:
        super().__init__()
        self._loop: asyncio.AbstractEventLoop | None = None  # the followers' loop
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
        """End every follower, present or future, after the lines that exist: the server stops."""
        self._is_over = True
        self._pass_on(None)

    def last(self, count: int) -> list[str]:
        """Return the last `count` lines."""
        lines = list(self._lines)
        return lines[max(0, len(lines) - count) :]

    async def follow(self, count: int) -> AsyncIterator[str]:
        """Yield the last lines, then every new one, until the reader stops."""
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


class _Form(logging.Formatter):
    """A log line without its place in the code, which in a server is always our own. Names and the
    last output of models are not trusted; they cannot fake a line, because every line of a message
    but the first is indented."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return plain(super().format(record)).replace("\n", "\n    ")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return timestamp(record.created)

    def formatMessage(self, record: logging.LogRecord) -> str:
        place = getattr(record, "sojourn_place", None)
        if place:
            record.message = record.message.replace(f" at {place}", "", 1)
        return super().formatMessage(record)


class _ToStandardError(logging.StreamHandler[Any]):
    """Writes to the current standard error: it is replaced while models load in a terminal."""

    @property
    def stream(self) -> Any:
        return sys.stderr

    @stream.setter
    def stream(self, stream: Any) -> None:
        pass


@contextlib.contextmanager
def logging_to(settings: Settings, lines: LogLines) -> Iterator[None]:
    logger = logging.getLogger("sojourn")
    handlers = [_ToStandardError(), lines]
    before = logger.level
    logger.setLevel(settings.log_level.upper())
    for handler in handlers:
        handler.setFormatter(_Form())
        logger.addHandler(handler)
    try:
        yield
    finally:
        logger.setLevel(before)
        for handler in handlers:
            logger.removeHandler(handler)
