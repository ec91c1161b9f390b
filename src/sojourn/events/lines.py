"""Events as JSON lines in a file: `SOJOURN_EVENTS=file`, or `write_lines(path)`.

Each line is written with one system call, so that a crash loses no written line and several
processes can share a file. The file is bounded: when it is full, it is renamed to `<file>.1`.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import warnings
import weakref
from collections.abc import Callable

import msgspec

from sojourn.events.bus import Event, subscribe
from sojourn.values import arguments
from sojourn.values.texts import sendable

MAX_BYTES = 64 * 2**20
# Identifies this process in the file, because containers give their processes the same pids.
_RUN_ID = os.urandom(6).hex()
_encoder = msgspec.json.Encoder(enc_hook=str)


class _Writer:
    def __init__(self, path: str, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        # Reentrant: a finalizer may emit an event while this same thread holds the lock.
        self._lock = threading.RLock()
        self._fd = self._open()
        _writers.add(self)

    def __call__(self, event: Event) -> None:
        line = _encoded(event) + b"\n"
        with self._lock:
            if self._fd < 0:
                return
            if not self._is_at_path():
                self._begin_anew()
            if os.fstat(self._fd).st_size + len(line) > self._max_bytes:
                self._turn_over()
            os.write(self._fd, line)

    def close(self) -> None:
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def _is_at_path(self) -> bool:
        """Whether the open file is still at its path: another process or logrotate may move it."""
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._fd))
        except FileNotFoundError:
            return False

    def _turn_over(self) -> None:
        import fcntl  # does not exist on every system that can import this module

        # If several processes find the file full, one renames it: they share a lock on the file.
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        mode = stat.S_IMODE(os.fstat(self._fd).st_mode)
        try:
            if self._is_at_path():
                os.replace(self._path, f"{self._path}.1")
            self._begin_anew()
        except OSError:  # the folder may be read-only for us: other processes must not wait for us
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            raise
        with contextlib.suppress(OSError):  # perhaps the file of another user
            os.fchmod(self._fd, mode)  # the new file is readable by the same users as the old one

    def _begin_anew(self) -> None:
        before, self._fd = self._fd, self._open()
        os.close(before)  # this also releases its lock

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def after_fork_in_child(self) -> None:
        # The lock may be held by a thread that does not exist here. A lock on the file belongs to
        # the open file, which a fork shares with its parent: so the child opens the file again.
        self._lock = threading.RLock()
        if self._fd >= 0:
            self._begin_anew()


def write_lines(
    path: str | os.PathLike[str], *, max_bytes: int | str = MAX_BYTES
) -> Callable[[], None]:
    """Append every event to a file, until the returned function is called.

    A file that reaches `max_bytes`, such as `"64MiB"`, is renamed to `<file>.1`, and a new one is
    started.
    """
    file = os.path.abspath(arguments.path("path", path))  # the program may change folders
    writer = _Writer(file, arguments.memory("max_bytes", max_bytes))
    unsubscribe = subscribe(writer)

    def stop() -> None:
        unsubscribe()
        writer.close()

    return stop


def write_lines_when_there_are_some(path: str) -> None:
    """Append every event to a file that is opened only when the first event is emitted."""
    with contextlib.suppress(FileNotFoundError):  # the current folder is gone; `begin` will warn
        path = os.path.abspath(path)

    def begin(event: Event) -> None:
        stop()
        try:
            writer = _Writer(path, MAX_BYTES)
        except OSError as error:
            message = f"SOJOURN_EVENTS: no events are recorded, {path} cannot be written: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
            return
        subscribe(writer)
        writer(event)

    stop = subscribe(begin)


def _encoded(event: Event) -> bytes:
    facts = {**event.to_dict(), "run_id": _RUN_ID}
    try:
        return _encoder.encode(facts)
    except UnicodeEncodeError:  # a path with bytes that are not valid text
        texts = {n: sendable(value) for n, value in facts.items() if isinstance(value, str)}
        return _encoder.encode(facts | texts)


_writers: weakref.WeakSet[_Writer] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for writer in list(_writers):
        writer.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
