"""One JSON line for each request: client, request and outcome. No bodies, no tokens.

Requests only queue their line; a thread writes the lines, several at a time. Where the disk cannot
keep up, lines are dropped and counted: requests must never block on the log.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import secrets
import threading
import time
from collections import deque
from datetime import datetime, timezone

import msgspec

GATHER_SECONDS = 0.1
LAST_SECONDS = 2.0  # to write the rest; a stalled reader must not keep a server from exiting
MOST_WAITING = 50_000  # lines
_GIVEN_ID = re.compile(r"[A-Za-z0-9._:/+=@\-]{1,128}")
_log = logging.getLogger("sojourn.service")
_prefix = secrets.token_hex(4)
_numbers = itertools.count(1)


class Entry(msgspec.Struct, omit_defaults=True):
    """A request that has been answered."""

    time: str
    request_id: str
    peer: str
    protocol: str
    method: str
    path: str
    status: int
    seconds: float
    received_bytes: int
    sent_bytes: int
    model: str = ""
    trace_id: str = ""
    user_agent: str = ""


def request_id(given: str | None) -> str:
    """Return the client's own id, if it is safe in a header and a log; else a new one."""
    if given is not None and _GIVEN_ID.fullmatch(given):
        return given
    return f"{_prefix}-{next(_numbers):x}"


def timestamp(wall: float) -> str:
    """Format a wall-clock time for a log: UTC, with milliseconds."""
    moment = datetime.fromtimestamp(wall, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class AccessLog:
    """The access log: appends to a file, or to standard output for `-`, until `close()`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = self._open()
        self._lines: deque[bytes] = deque()
        self._trouble = ""
        self._dropped = 0
        self._is_torn = False  # the last line was cut short: the disk was full
        self._encoder = msgspec.json.Encoder()
        self._has_some = threading.Event()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write_all, name="access-log", daemon=True)
        self._thread.start()

    def write(self, entry: Entry) -> None:
        """Queue a line. Never blocks."""
        if len(self._lines) >= MOST_WAITING:
            self._dropped += 1
            return
        self._lines.append(self._encoder.encode(entry))
        if not self._has_some.is_set():
            self._has_some.set()

    def close(self) -> None:
        """Write the lines that still wait, and stop the thread."""
        self._is_over.set()
        self._has_some.set()
        self._thread.join(LAST_SECONDS)
        if self._thread.is_alive():
            _log.error("the access log is not read: what was not written is lost")
        elif self._fd > 2:
            os.close(self._fd)

    def _write_all(self) -> None:
        while not self._is_over.is_set():
            self._has_some.wait()
            self._is_over.wait(GATHER_SECONDS)
            self._has_some.clear()
            self._write_waiting()
        self._write_waiting()

    def _write_waiting(self) -> None:
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        dropped, self._dropped = self._dropped, 0
        if dropped:
            note = {"time": timestamp(time.time()), "dropped_lines": dropped}
            lines.append(self._encoder.encode(note))
        data = b"".join(line + b"\n" for line in lines)
        try:
            if self._path != "-" and not self._is_at_path():
                before, self._fd = self._fd, self._open()  # log rotation has moved the file
                os.close(before)
                self._is_torn = False
            data = b"\n" * self._is_torn + data
            while data:
                written = os.write(self._fd, data)
                self._is_torn = data[written - 1] != ord("\n")
                data = data[written:]
            self._trouble = ""
        except OSError as error:  # a full disk must not end the service
            lost = min(data.count(b"\n"), len(lines))
            self._dropped += lost + dropped - bool(dropped)  # the note itself does not count
            if self._trouble != str(error):
                self._trouble = str(error)
                _log.error("the access log cannot be written: %s", error)

    def _is_at_path(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._fd))
        except FileNotFoundError:
            return False

    def _open(self) -> int:
        if self._path == "-":
            return 1
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
