"""How to wait for an answer: look at its word again and again, or sleep until the bell rings.

Looking is quicker where a core is free for it, because being woken takes about as long as a small
step. Sleeping is quicker where the server needs that core: for a step that uses all of them, or
because other programs have them. So both are tried, again and again. Who looks goes on looking
unless sleeping is clearly quicker: a few waits say little, and a wrong guess costs a small step
more than a large one.

Pure: it is told how long each wait took.
"""

from __future__ import annotations

from collections import deque

# About 400 us of looking at a word from Python. Longer steps are slept for.
MOST_LOOKS = 10_000
_TRIES = 4  # of each, one after the other
_PERIOD = 256  # waits, from one trial to the next
_CLEARLY = 1.2
_REMEMBERED = 2 * _TRIES
_IN_VAIN = float("inf")
_KINDS_REMEMBERED = 256  # of requests


class Patience:
    """What was learned about one kind of request."""

    __slots__ = ("_looked", "_looks", "_slept", "_waits", "is_trying")

    def __init__(self) -> None:
        self.is_trying = False  # whether it wants to know how long the wait at hand takes
        self._waits = -1
        self._looks = MOST_LOOKS
        self._looked: deque[float] = deque(maxlen=_REMEMBERED)
        self._slept: deque[float] = deque(maxlen=_REMEMBERED)

    def looks(self) -> int:
        """How often to look this time before going to sleep."""
        self._waits = waits = (self._waits + 1) % _PERIOD
        self.is_trying = waits < 2 * _TRIES
        if not self.is_trying:
            return self._looks
        return MOST_LOOKS if waits < _TRIES else 0

    def learn(self, seconds: float, *, was_seen: bool) -> None:
        """The wait took so long, and the answer was seen by looking or not."""
        if self._waits < _TRIES:
            self._looked.append(seconds if was_seen else _IN_VAIN)
            return
        self._slept.append(seconds)
        if self._waits == 2 * _TRIES - 1 and self._looked:  # else all of those were given up
            is_worse = _usual(self._looked) > _CLEARLY * _usual(self._slept)
            self._looks = 0 if is_worse else MOST_LOOKS


class Learned:
    """The patience for each kind of request, known by its meta bytes."""

    def __init__(self) -> None:
        self._by_meta: dict[bytes, Patience] = {}

    def of(self, meta: bytes) -> Patience:
        """What was learned about this kind."""
        known = self._by_meta.get(meta)
        if known is None:
            if len(self._by_meta) >= _KINDS_REMEMBERED:
                self._by_meta.clear()
            known = self._by_meta[meta] = Patience()
        return known


def _usual(times: deque[float]) -> float:
    """What one takes, the slowest left out. Not the median: where other programs want the cores,
    looking is quick most of the time, and very slow the rest of it."""
    kept = sorted(times)[: max(1, len(times) - 1)]
    return sum(kept) / len(kept)
