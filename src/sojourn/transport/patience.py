"""How to wait for an answer: look at its word again and again, or sleep until the bell rings.

Looking is quicker where a core is free for it, because being woken takes about as long as a small
step. Sleeping is quicker where the server needs that core: for a step that uses all of them, or
because other programs have them. So both are tried, again and again, and the quicker one is kept.

Pure: it is told how long each wait took.
"""

from __future__ import annotations

from collections import deque

# About 400 us of looking at a word from Python. Longer steps are slept for.
MOST_LOOKS = 10_000
_TRIES = 4  # of each, one after the other
_PERIOD = 128  # waits, from one trial to the next
_REMEMBERED = 2 * _TRIES
_IN_VAIN = float("inf")
_KINDS_REMEMBERED = 256  # of requests


class Patience:
    """What was learned about one kind of request."""

    __slots__ = ("_looked", "_looks", "_slept", "_waits")

    def __init__(self) -> None:
        self._waits = -1
        self._looks = MOST_LOOKS
        self._looked: deque[float] = deque(maxlen=_REMEMBERED)
        self._slept: deque[float] = deque(maxlen=_REMEMBERED)

    def looks(self) -> int:
        """How often to look this time before going to sleep."""
        self._waits = waits = (self._waits + 1) % _PERIOD
        if waits >= 2 * _TRIES:
            return self._looks
        return MOST_LOOKS if waits < _TRIES else 0

    @property
    def is_trying(self) -> bool:
        """Whether it wants to know how long this wait takes."""
        return self._waits < 2 * _TRIES

    def learn(self, seconds: float, *, was_seen: bool) -> None:
        """The wait took so long, and the answer was seen by looking or not."""
        if self._waits < _TRIES:
            self._looked.append(seconds if was_seen else _IN_VAIN)
            return
        self._slept.append(seconds)
        if self._waits == 2 * _TRIES - 1 and self._looked:  # else all of those were given up
            self._looks = MOST_LOOKS if _middle(self._looked) <= _middle(self._slept) else 0


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


def _middle(times: deque[float]) -> float:
    return sorted(times)[len(times) // 2]
