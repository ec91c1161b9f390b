"""How to wait for an answer: look at its word again and again, or sleep until the bell rings.

Looking is quicker where a core is free for it, because being woken takes about as long as a small
step. Sleeping is quicker where the server needs that core: for a step that uses all of them, or
because other programs have them. So both are tried, again and again. Who looks goes on looking
unless sleeping is clearly quicker: a few waits say little, and a wrong guess costs a small step
more than a large one. Only waits that follow closely upon each other are compared: after a pause
everything is slow for some steps.

Pure: it is told when each wait began and ended.
"""

from __future__ import annotations

from collections import deque

# About 400 us of looking at a word from Python. Longer steps are slept for.
MOST_LOOKS = 10_000
_TRIES = 4  # of each, one after the other
_PERIOD = 256  # waits, from one trial to the next
_BEFORE = 32  # waits before the first: those of a new step tell how long making it takes
_CLEARLY = 1.5
_PAUSE_SECONDS = 200e-6
_AFTER_A_PAUSE = 3  # waits that teach nothing
_LEFT_OUT_AT_MOST = 16  # of them in one trial: some callers do nothing but pause
_REMEMBERED = 2 * _TRIES
_IN_VAIN = float("inf")
_KINDS_REMEMBERED = 256  # of requests


class Patience:
    """What was learned about one kind of request."""

    __slots__ = (
        "_ended", "_looked", "_looks", "_may_leave_out", "_slept", "_unsettled", "_waits",
        "is_trying",
    )  # fmt: skip

    def __init__(self) -> None:
        self.is_trying = False  # whether it wants to know how long the wait at hand takes
        self._waits = _PERIOD - _BEFORE - 1
        self._looks = MOST_LOOKS
        self._looked: deque[float] = deque(maxlen=_REMEMBERED)
        self._slept: deque[float] = deque(maxlen=_REMEMBERED)
        self._ended = 0.0
        self._unsettled = 0
        self._may_leave_out = _LEFT_OUT_AT_MOST

    def looks(self) -> int:
        """How often to look this time before going to sleep."""
        self._waits = waits = (self._waits + 1) % _PERIOD
        self.is_trying = waits < 2 * _TRIES
        if not self.is_trying:
            return self._looks
        return MOST_LOOKS if waits < _TRIES else 0

    def learn(self, began: float, ended: float, *, was_seen: bool) -> None:
        """The wait took from then till then, and the answer was seen by looking or not."""
        if began - self._ended > _PAUSE_SECONDS:
            self._unsettled = _AFTER_A_PAUSE
        self._ended = ended
        if self._unsettled and self._may_leave_out:
            self._unsettled -= 1
            self._may_leave_out -= 1
            self._waits -= 1  # once more
            return
        seconds = ended - began
        if self._waits < _TRIES:
            self._looked.append(seconds if was_seen else _IN_VAIN)
            return
        self._slept.append(seconds)
        if self._waits == 2 * _TRIES - 1:
            self._may_leave_out = _LEFT_OUT_AT_MOST
            if self._looked:  # else all of those were given up
                is_worse = _usual(self._looked) > _CLEARLY * _usual(self._slept)
                self._looks = 0 if is_worse else MOST_LOOKS


class Learned:
    """The patience for each kind of request, known by its meta bytes and the layout of its arrays:
    steps of other sizes take other times."""

    def __init__(self) -> None:
        self._by_kind: dict[tuple[bytes, int], Patience] = {}

    def of(self, meta: bytes, layout: int) -> Patience:
        """What was learned about this kind."""
        known = self._by_kind.get((meta, layout))
        if known is None:
            if len(self._by_kind) >= _KINDS_REMEMBERED:
                self._by_kind.clear()
            known = self._by_kind[meta, layout] = Patience()
        return known


def _usual(times: deque[float]) -> float:
    """What one takes, the slowest left out. Not the median: where other programs want the cores,
    looking is quick most of the time, and very slow the rest of it."""
    kept = sorted(times)[: max(1, len(times) - 1)]
    return sum(kept) / len(kept)
