"""Events as JSON lines in a file: `SOJOURN_EVENTS=file`, or `write_lines(path)`.

Each line goes to the kernel in one write, so that a crash loses nothing that was written and
several processes can share a file. The file is bounded: when it is full it becomes `<file>.1`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import msgspec

from sojourn.events.bus import Event, subscribe

MAX_BYTES = 64 * 2**20
_encoder = msgspec.json.Encoder(enc_hook=str)


class _Writer:
    def __init__(self, path: str, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        # A finalizer may tell of something while this very thread is in here.
        self._lock = threading.RLock()
        self._fd = self._open()
        self._written = os.fstat(self._fd).st_size

    def __call__(self, event: Event) -> None:
        line = _encoder.encode(event.to_dict()) + b"\n"
        with self._lock:
            if self._fd < 0:
                return
            if self._written + len(line) > self._max_bytes:
                self._turn_over()
            os.write(self._fd, line)
            self._written += len(line)

    def close(self) -> None:
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def _turn_over(self) -> None:
        os.replace(self._path, f"{self._path}.1")
        full, self._fd = self._fd, self._open()
        self._written = 0
        os.close(full)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)


def write_lines(path: str, *, max_bytes: int = MAX_BYTES) -> Callable[[], None]:
    """Append every event to a file, until the returned function is called."""
    writer = _Writer(path, max_bytes)
    unsubscribe = subscribe(writer)

    def stop() -> None:
        unsubscribe()
        writer.close()

    return stop
