"""Track models that keep crashing, are too large, or keep growing. Times are passed in."""

from __future__ import annotations

from dataclasses import dataclass

from sojourn.errors import SessionBroken
from sojourn.values import format_seconds

CRASH_LIMIT = 3  # crashes in a row, without a successful lease, until callers get an error
FIRST_DELAY_SECONDS = 0.1
LONGEST_DELAY_SECONDS = 30.0
_LAST_WORDS = "Last words: "
GROWTH_READINGS = 3  # high readings in a row until growth counts as proven


def backoff_seconds(count: int) -> float:
    """Return how long not to open a model again after `count` crashes in a row.

    >>> [backoff_seconds(n) for n in (1, 2, 3, 4)]
    [0.0, 0.1, 0.2, 0.4]
    """
    if count <= 1:
        return 0.0
    return float(min(FIRST_DELAY_SECONDS * 2 ** min(count - 2, 20), LONGEST_DELAY_SECONDS))


@dataclass(slots=True)
class Failures:
    """The number of failures in a row, and the time of the next attempt."""

    count: int = 0
    retry_at: float = 0.0

    def must_wait(self, now: float) -> bool:
        """Whether it is too early to open the model again."""
        return self.count > 0 and now < self.retry_at


@dataclass(slots=True)
class Crashes(Failures):
    """The crashes of one model since its last successful lease."""

    last_words: str = ""

    def record(self, last_words: str, now: float) -> None:
        self.count += 1
        self.last_words = last_words
        self.retry_at = now + backoff_seconds(self.count)

    def forgive(self) -> None:
        self.count = 0
        self.retry_at = 0.0

    def is_hopeless(self, now: float) -> bool:
        """Whether callers get an error instead of waiting."""
        return self.count >= CRASH_LIMIT and self.must_wait(now)

    def error(self, model: str, now: float) -> SessionBroken:
        wait = format_seconds(max(0.0, self.retry_at - now))
        words = self.last_words.strip() or "none"
        return SessionBroken(
            f"{model}: its worker crashed {self.count} times in a row; the next attempt is "
            f"possible in {wait}. {_LAST_WORDS}{words}"
        )


def last_words(error: BaseException) -> str:
    """Return the worker's last words from the error, without the count of crashes and the wait."""
    return str(error).rpartition(_LAST_WORDS)[2]


@dataclass(slots=True)
class Oversize(Failures):
    """The attempts to open a model whose fresh copies exceed what the pool can give it. Sizes
    change, so it is retried, but not for every request: each attempt evicts others."""

    held_bytes: int = 0

    def record(self, held_bytes: int, now: float) -> None:
        self.count += 1
        self.held_bytes = held_bytes
        self.retry_at = now + min(2.0 ** min(self.count - 1, 20), LONGEST_DELAY_SECONDS)


@dataclass(slots=True)
class Growth:
    """The size readings of one copy. The first one after a lease is the baseline: by then
    TensorFlow has allocated its buffers. A single high reading proves nothing, since the next ones
    may be lower."""

    baseline_bytes: int | None = None
    high_readings: int = 0
    last_bytes: int = 0

    def record(self, held_bytes: int, max_growth_bytes: int | None) -> None:
        self.last_bytes = held_bytes
        if self.baseline_bytes is None:
            self.baseline_bytes = held_bytes
            return
        grown = held_bytes - self.baseline_bytes
        if max_growth_bytes is not None and grown > max_growth_bytes:
            self.high_readings += 1
        else:
            self.high_readings = 0

    @property
    def is_proven(self) -> bool:
        return self.high_readings >= GROWTH_READINGS

    @property
    def grown_bytes(self) -> int:
        return self.last_bytes - (self.baseline_bytes or self.last_bytes)
