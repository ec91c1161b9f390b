"""The output of a worker: kept in an anonymous memory file, shown by the caller's own thread.

This needs no thread, and there is no pipe that could fill up. The thread that waits for the worker
writes new output to the caller's `sys.stdout` and `sys.stderr`, so it appears in notebooks too, and
in order. Memory of shown output is freed; the last words are kept for the error message. From an
untrusted worker, only plain text is shown, and only a limited amount.
"""

from __future__ import annotations

import codecs
import contextlib
import ctypes
import logging
import os
import re
import sys
import threading
from typing import TextIO

from sojourn.process import log_records
from sojourn.process.deadlines import held_or_stopped
from sojourn.process.nets import close_all, net
from sojourn.process.plain import plain

_KEPT_BYTES = 8192  # of shown output, for last words
_LAST_LINES = 12
_FALLOC_PUNCH_HOLE = 0x03  # together with KEEP_SIZE
_PUNCH_EVERY = 2**20  # bytes of shown output that are freed at once
# The bytes that one call reads at most: a worker can make its stream very long (and sparse, so that
# this costs it no memory).
_MOST_AT_ONCE = 64 * 2**20
# The number of characters of an untrusted worker's stream that are shown in all.
MOST_OF_UNTRUSTED = 2**20

# TensorFlow's and XLA's own messages, and the last message of C++, which the error for a dead
# worker reports: kept as last words, not shown.
_CHATTER = re.compile(
    rb"^(?:[IWEF]0000 |\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWEF] "
    rb"|WARNING: All log messages before absl|I\d{4} \d\d:\d\d|W\d{4} \d\d:\d\d"
    rb"|To enable the following instructions|INFO: Created TensorFlow Lite |terminate called )"
)


class Stream:
    """One of a worker's two streams."""

    fd = -1

    def __init__(self, name: str, filters_chatter: bool, trusted: bool = True) -> None:
        self._filters = filters_chatter
        self._trusted = trusted
        self._room = MOST_OF_UNTRUSTED
        self._shown = 0
        self._punched = 0
        self._is_in_line = self._is_in_chatter = False
        self._begun = b""  # the beginning of an incomplete log record
        self._records: list[logging.LogRecord] = []
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._lock = threading.Lock()
        # First the net, then the file: a Ctrl-C may arrive before anything else owns the file.
        made: list[int] = []
        self._net = net(self, close_all, made)
        made.append(os.memfd_create(name, os.MFD_CLOEXEC))
        self.fd = made[0]

    def take(self) -> str:
        """Return the text written since the last call; if that is too long, the end of it."""
        with self._lock:
            end = self._size()
            if end <= self._shown:
                return ""
            most = _MOST_AT_ONCE if self._room > 0 else 0  # with no room left, nothing is shown
            start = max(self._shown, end - most)
            data = os.pread(self.fd, end - start, start)
            self._shown = start + len(data)
            self._give_back()
            if self._trusted:
                data, records, self._begun = log_records.separate(self._begun + data)
                self._records += records
            # The last character and the last line may still be incomplete.
            text = self._decoder.decode(self._without_chatter(data) if self._filters else data)
            return text if self._trusted else self._guarded(text)

    def take_records(self) -> list[logging.LogRecord]:
        """Return the log records in the output taken so far."""
        with self._lock:
            records, self._records = self._records, []
        return records

    def _guarded(self, text: str) -> str:
        if self._room <= 0:
            return ""
        shown, self._room = text[: self._room], self._room - len(text)
        if self._room > 0:
            return plain(shown)
        return plain(shown) + "\n(an untrusted model prints too much: no more of it is shown)\n"

    def _without_chatter(self, data: bytes) -> bytes:
        shown = []
        for line in data.splitlines(keepends=True):
            if not self._is_in_line:
                self._is_in_chatter = _CHATTER.match(line) is not None
            self._is_in_line = not line.endswith(b"\n")
            if not self._is_in_chatter:
                shown.append(line)
        return b"".join(shown)

    def tail(self) -> str:
        """Return the last lines."""
        with self._lock:
            start = max(0, self._size() - _KEPT_BYTES)
            data = os.pread(self.fd, _KEPT_BYTES, start) if self.fd >= 0 else b""
        if self._trusted:
            data = log_records.readable(data)
        lines = data.decode(errors="replace").strip().splitlines()
        words = "\n".join(lines[-_LAST_LINES:])
        return words if self._trusted else plain(words)

    def close(self) -> None:
        """Free the memory, once the threads that read it now have finished."""
        with held_or_stopped(self._lock):
            fd, self.fd = self.fd, -1
            if self._net.detach() is not None:
                os.close(fd)

    def become_foreign(self) -> None:
        """Close it in a fork, where the lock may belong to a thread that does not exist."""
        self._lock = threading.Lock()
        self.close()

    def _size(self) -> int:
        return os.fstat(self.fd).st_size if self.fd >= 0 else 0

    def _give_back(self) -> None:
        end = self._shown - _KEPT_BYTES
        if end - self._punched < _PUNCH_EVERY:
            return
        libc = ctypes.CDLL(None, use_errno=True)
        libc.fallocate(
            self.fd,
            _FALLOC_PUNCH_HOLE,
            ctypes.c_long(self._punched),
            ctypes.c_long(end - self._punched),
        )
        self._punched = end


class Output:
    """Both streams of one worker."""

    def __init__(self, trusted: bool = True) -> None:
        self.out = Stream("sojourn-out", filters_chatter=False, trusted=trusted)
        try:
            self.err = Stream("sojourn-err", filters_chatter=True, trusted=trusted)
        except BaseException:
            self.out.close()
            raise

    def show(self) -> None:
        """Write new output to the caller's own streams.

        If a stream fails, its output is lost and no error is raised: the step that printed it has
        been done, and a caller that got an error would repeat it.
        """
        for stream, target in ((self.out, sys.stdout), (self.err, sys.stderr)):
            with contextlib.suppress(Exception):  # closed, a broken pipe, or the user's own class
                text = stream.take()
                if text and target is not None:
                    self.write(text, target)
        with contextlib.suppress(Exception):  # the user's handler failed
            log_records.handle(self.err.take_records())

    def write(self, text: str, target: TextIO) -> None:
        """Write text to one of the caller's streams."""
        _write(text, target)

    def last_words(self) -> str:
        """Return the last lines that the worker wrote to standard error."""
        return self.err.tail()

    def close(self) -> None:
        """Free the memory."""
        self.out.close()
        self.err.close()

    def become_foreign(self) -> None:
        """Close both streams in a fork of the client."""
        self.out.become_foreign()
        self.err.become_foreign()


def _write(text: str, target: TextIO | None) -> None:
    if target is None:
        return
    try:
        target.write(text)
    except UnicodeEncodeError:
        encoding = target.encoding or "ascii"
        target.write(text.encode(encoding, "backslashreplace").decode(encoding))
    target.flush()
