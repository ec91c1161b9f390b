"""The history: the last hour in memory and, if a file is configured, longer in sqlite.

The file is limited in age and size, and no request waits for it: one thread writes the collected
rows. A disk that is full or read-only costs the history, never an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

from sojourn.service.page.points import Point

HOUR = 3600.0
MEMORY_SECONDS = HOUR
MEMORY_RECEIPTS = 500
KEEP_SECONDS = 14 * 24 * HOUR
MAX_BYTES = 256 * 2**20
PRUNE_SECONDS = 600.0
_SCHEMA = 1
_TABLES = (
    "CREATE TABLE points (model TEXT, at REAL, body BLOB, PRIMARY KEY (model, at)) WITHOUT ROWID",
    "CREATE TABLE receipts (at REAL, session TEXT, body BLOB)",
    "CREATE INDEX receipts_by_time ON receipts (at)",
)
_log = logging.getLogger("sojourn.service")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Point).decode
_decode_receipt = msgspec.msgpack.Decoder(dict[str, Any]).decode
_Read = TypeVar("_Read")


class History:
    """Past points and receipts; used on one event loop, between `open` and `close`."""

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        keep_seconds: float = KEEP_SECONDS,
        max_bytes: int = MAX_BYTES,
        prune_seconds: float = PRUNE_SECONDS,
    ) -> None:
        self.problem = ""  # why the file is not written, in words for users
        self._path = None if path is None else os.fspath(path)
        self._keep_seconds = keep_seconds
        self._max_bytes = max_bytes
        self._prune_seconds = prune_seconds  # between prunings, which scan the whole file
        self._prune_at = 0.0
        self._points: dict[str, deque[Point]] = {}
        self._receipts: deque[dict[str, Any]] = deque(maxlen=MEMORY_RECEIPTS)
        self._unwritten: list[tuple[str, Any]] = []
        self._file: sqlite3.Connection | None = None
        self._thread: ThreadPoolExecutor | None = None

    @property
    def is_kept(self) -> bool:
        """Whether the history is in a file, and survives a restart."""
        return self._file is not None

    async def open(self) -> None:
        """Open the file, and load the last hour and the newest receipts."""
        if self._path is None:
            return
        self._thread = ThreadPoolExecutor(1, "sojourn-page-history")
        since = time.time() - MEMORY_SECONDS
        for point in await self._in_file(lambda: self._begin(since)) or ():
            self._remember(point)
        if self._file is not None:
            self._receipts.extend(reversed(await self._in_file(self._last_receipts) or []))

    async def close(self) -> None:
        """Write what has not been written. May be called twice."""
        if self._thread is not None:
            await self.write()
            file, self._file = self._file, None
            if file is not None:
                await self._in_file(file.close)
            self._thread.shutdown()
            self._thread = None

    # -- adding -------------------------------------------------------------------------------

    def add(self, points: Iterable[Point]) -> None:
        """Add points."""
        for point in points:
            self._remember(point)
            self._note("points", point)

    def add_receipt(self, receipt: dict[str, Any]) -> None:
        """Add the receipt of a close: plain values, with `at` and `session`."""
        self._receipts.append(receipt)
        self._note("receipts", receipt)

    async def write(self) -> None:
        """Write the collected rows to the file."""
        if self._file is not None and self._unwritten:
            noted, self._unwritten = self._unwritten, []
            await self._in_file(lambda: self._write(noted))

    # -- questions ----------------------------------------------------------------------------

    def newest(self) -> list[Point]:
        """The newest point of each model, and of all models together."""
        return [points[-1] for points in self._points.values()]

    async def points(self, model: str, seconds: float) -> list[Point]:
        """The points of a model in the last `seconds`, oldest first."""
        since = time.time() - seconds
        if self._file is not None and seconds > MEMORY_SECONDS:
            await self.write()
            return await self._in_file(lambda: self._read_points(model, since)) or []
        return [point for point in self._points.get(model, ()) if point.at >= since]

    async def receipts(self, most: int, is_wanted: Callable[[str], bool]) -> list[dict[str, Any]]:
        """The newest receipts of sessions whose names pass `is_wanted`, newest first."""
        if self._file is not None and most > MEMORY_RECEIPTS:
            await self.write()
            found = await self._in_file(lambda: self._read_receipts(most, is_wanted))
            if found is not None:
                return found
        fitting = [r for r in reversed(self._receipts) if is_wanted(str(r.get("session")))]
        return fitting[:most]

    # -- memory -------------------------------------------------------------------------------

    def _remember(self, point: Point) -> None:
        points = self._points.setdefault(point.model, deque())
        points.append(point)
        while points and points[0].at < point.at - MEMORY_SECONDS:
            points.popleft()
        for model in [m for m, kept in self._points.items() if kept[-1].at < point.at - HOUR]:
            del self._points[model]  # it is no longer served

    def _note(self, table: str, row: Any) -> None:
        if self._file is not None:
            self._unwritten.append((table, row))

    # -- the file, on its thread ----------------------------------------------------------------

    async def _in_file(self, work: Callable[[], _Read]) -> _Read | None:
        assert self._thread is not None
        try:
            done = await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except (sqlite3.Error, OSError, msgspec.MsgspecError) as error:
            problem = f"{self._path}: {error}"
            if problem != self.problem:
                _log.warning("the page's history is not kept: %s", problem)
            self.problem = problem
            return None
        self.problem = ""
        return done

    def _begin(self, since: float) -> list[Point]:
        assert self._path is not None
        file = sqlite3.connect(self._path, timeout=5, check_same_thread=False)
        try:
            _is_new(file)  # raises for another program's file, before anything is changed
            file.execute("PRAGMA journal_mode = WAL")
            file.execute("PRAGMA synchronous = NORMAL")
            with file:
                file.execute("BEGIN IMMEDIATE")  # another server may do the same
                if _is_new(file):
                    for statement in _TABLES:
                        file.execute(statement)
                    file.execute(f"PRAGMA user_version = {_SCHEMA}")
            rows = file.execute("SELECT body FROM points WHERE at >= ? ORDER BY at", (since,))
            found = _readable(_decode, rows)
        except BaseException:
            file.close()
            raise
        self._file = file
        return found

    def _write(self, noted: list[tuple[str, Any]]) -> None:
        assert self._file is not None
        with self._file as file:
            for table, row in noted:
                if table == "points":
                    values = (row.model, row.at, _encode(row))
                    file.execute("INSERT OR REPLACE INTO points VALUES (?, ?, ?)", values)
                else:
                    values = (row["at"], row["session"], _encode(row))
                    file.execute("INSERT INTO receipts VALUES (?, ?, ?)", values)
            if time.monotonic() >= self._prune_at:
                self._prune_at = time.monotonic() + self._prune_seconds
                oldest = time.time() - self._keep_seconds
                for table in ("points", "receipts"):
                    file.execute(f"DELETE FROM {table} WHERE at < ?", (oldest,))
                if self._used_bytes() > self._max_bytes:
                    self._forget_a_tenth()

    def _used_bytes(self) -> int:
        pages, free, size = (
            self._pragma(name) for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size

    def _pragma(self, name: str) -> int:
        assert self._file is not None
        return int(self._file.execute(f"PRAGMA {name}").fetchone()[0])

    def _forget_a_tenth(self) -> None:
        assert self._file is not None
        for table in ("points", "receipts"):
            [first, last] = self._file.execute(f"SELECT min(at), max(at) FROM {table}").fetchone()
            if first is not None:
                until = first + (last - first) / 10
                self._file.execute(f"DELETE FROM {table} WHERE at <= ?", (until,))

    def _read_points(self, model: str, since: float) -> list[Point]:
        assert self._file is not None
        question = "SELECT body FROM points WHERE model = ? AND at >= ? ORDER BY at"
        return _readable(_decode, self._file.execute(question, (model, since)))

    def _last_receipts(self) -> list[dict[str, Any]]:
        return self._read_receipts(MEMORY_RECEIPTS, lambda session: True)

    def _read_receipts(self, most: int, is_wanted: Callable[[str], bool]) -> list[dict[str, Any]]:
        assert self._file is not None
        found: list[dict[str, Any]] = []
        question = "SELECT session, body FROM receipts ORDER BY at DESC"
        for session, body in self._file.execute(question):
            if is_wanted(session):
                found += _readable(_decode_receipt, [(body,)])
            if len(found) == most:
                break
        return found


def _is_new(file: sqlite3.Connection) -> bool:
    """Whether the file is empty. Raises DatabaseError if it has other content than ours."""
    found = {sql for (sql,) in file.execute("SELECT sql FROM sqlite_master WHERE sql NOT NULL")}
    [schema] = file.execute("PRAGMA user_version").fetchone()
    if schema not in (0, _SCHEMA):
        raise sqlite3.DatabaseError(f"is of another version of sojourn (schema {schema})")
    if found and found != {*_TABLES}:
        raise sqlite3.DatabaseError("is the database of another program")
    return not found


def _readable(decode: Callable[[bytes], _Read], rows: Iterable[tuple[bytes]]) -> list[_Read]:
    """Decode the rows; damaged ones are skipped."""
    found = []
    for (body,) in rows:
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, TypeError):
            found.append(decode(body))
    return found
