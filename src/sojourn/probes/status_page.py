"""A page of memory with the numbers of a session, readable by other processes of the same user.

It is an anonymous memory file that the owning process keeps open: `sojourn top` finds it among the
descriptors of that process, and it disappears with the process. No file is ever left behind. Every
word has a single writer, and writing one costs less than a tenth of a microsecond.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sojourn.probes import processes

NAME = "sojourn-status"
BUCKETS = 28  # powers of two of a microsecond: 1 us to 2 minutes
STATE, STEPS, UNDER_WAY, LAST_STEP, NANOSECONDS, HISTOGRAM = 0, 1, 2, 3, 4, 8
_WORDS = 64
_TEXT_AT = _WORDS * 8
_SIZE = 8192
# The facts that are numbers; the others are strings.
_NUMBERS = {"client_pid": int, "worker_pid": int, "serial": int, "opened": int | float}


def bucket(nanoseconds: int) -> int:
    """Return the index of the histogram bucket that a duration falls into."""
    number = (nanoseconds // 1000).bit_length()
    return number if number < BUCKETS else BUCKETS - 1


def bucket_seconds(index: int) -> float:
    """Return the upper end of a bucket, in seconds."""
    return float(2**index) / 1e6


def quantile(histogram: list[int], share: float) -> float:
    """Return the duration in seconds below which about this share of the steps lies; 0 for none.

    The steps are assumed to be spread evenly within their bucket.
    """
    wanted = share * sum(histogram)
    seen = 0
    for index, count in enumerate(histogram):
        if count and seen + count >= wanted:
            low, high = bucket_seconds(index - 1) if index else 0.0, bucket_seconds(index)
            return low + (high - low) * (wanted - seen) / count
        seen += count
    return 0.0


class StatusPage:
    """The writer's side of the page, in the process that owns the session."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self._memory: mmap.mmap | None = None
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create(NAME, os.MFD_CLOEXEC)
            try:
                os.ftruncate(fd, _SIZE)
                self._memory = mmap.mmap(fd, _SIZE)
            finally:
                os.close(fd)  # the mapping keeps a descriptor of its own
            self.words = memoryview(self._memory).cast("Q")
        else:
            self.words = memoryview(bytearray(_SIZE)).cast("Q")
        self.describe(facts)

    def describe(self, facts: dict[str, Any]) -> None:
        """Write the facts that rarely change."""
        text = _fitting(facts, _SIZE - _TEXT_AT - 1)
        view = self.words.cast("B")
        view[_TEXT_AT : _TEXT_AT + len(text) + 1] = text + b"\0"

    def histogram(self) -> list[int]:
        """Return the number of steps in each bucket of durations."""
        return self.words[HISTOGRAM : HISTOGRAM + BUCKETS].tolist()

    def close(self) -> None:
        """Free the page; this object keeps a readable copy of the numbers."""
        if self._memory is not None:
            kept = memoryview(bytearray(self.words.tobytes())).cast("Q")
            self.words.release()
            self.words = kept
            try:
                self._memory.close()
            except BufferError:
                pass  # a thread was interrupted while writing; the page is freed with that thread
            self._memory = None


@dataclass(frozen=True, slots=True)
class Status:
    """One session as another process sees it."""

    client_pid: int
    facts: dict[str, Any]
    state: int
    steps: int
    under_way: int
    last_step: float  # monotonic seconds, 0 before the first step
    step_seconds: float  # of all steps together
    histogram: list[int]


def read_all(pids: list[int] | None = None) -> Iterator[Status]:
    """Yield every session of every process that we may inspect.

    A fork inherits its parent's pages, but not the sessions, so its pages are skipped.
    """
    for entry in pids if pids is not None else processes.pids():
        try:
            names = os.listdir(f"/proc/{entry}/fd")
        except OSError:
            continue  # another user's process, or it has ended
        for name in names:
            status = _read(entry, f"/proc/{entry}/fd/{name}")
            if status is not None and status.facts.get("client_pid", entry) == entry:
                yield status


def _fitting(facts: dict[str, Any], most: int) -> bytes:
    """Encode the facts as JSON; if they do not fit into the page, cut off the ends of strings."""
    text = json.dumps(facts).encode()
    if len(text) > most:
        kept = most // (8 * len(facts))  # JSON needs up to 6 bytes a character, 12 for rare ones
        short = {key: v[:kept] if isinstance(v, str) else v for key, v in facts.items()}
        text = json.dumps(short).encode()
    return text


def _are_facts(facts: Any) -> bool:
    return isinstance(facts, dict) and all(
        isinstance(number := facts.get(key, 0), kind) and 0 <= number < 2**63  # excludes NaN
        for key, kind in _NUMBERS.items()
    )


def _read(pid: int, path: str) -> Status | None:
    try:
        if not os.readlink(path).startswith(f"/memfd:{NAME}"):
            return None
        with open(path, "rb") as page:
            data = page.read(_SIZE)
        facts = json.loads(data[_TEXT_AT:].partition(b"\0")[0])
    except (OSError, ValueError, RecursionError):
        return None
    if len(data) != _SIZE or not _are_facts(facts):
        return None  # any program, also another version of sojourn, can make a file of this name
    words = memoryview(data).cast("Q")
    return Status(
        client_pid=pid,
        facts=facts,
        state=words[STATE],
        steps=words[STEPS],
        under_way=words[UNDER_WAY],
        last_step=words[LAST_STEP] / 1e9,
        step_seconds=words[NANOSECONDS] / 1e9,
        histogram=words[HISTOGRAM : HISTOGRAM + BUCKETS].tolist(),
    )
