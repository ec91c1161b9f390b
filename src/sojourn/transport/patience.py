"""How to wait for an answer: spin on its sequence word, or block until the bell rings.

Spinning is faster where a core is free for it, because waking up takes about as long as a small
step. Blocking is faster where the server needs that core: for a step that uses all cores, or
because other programs use them. So both are tried, again and again. A caller that spins keeps
spinning unless blocking is clearly faster: a few waits prove little, and a wrong guess costs a
small step relatively more than a large one. Only waits in close succession are compared: after a
pause everything is slow for some steps.

Pure: the caller reports when each wait began and ended.
"""

from __future__ import annotations

from collections import deque

# About 400 us of spinning in Python. For longer steps the caller blocks.
MOST_LOOKS = 10_000
_TRIES = 4  # waits of each kind in one trial, one after the other
_PERIOD = 256  # waits from one trial to the next
_BEFORE = 32  # waits before the first trial: the first waits for a new step include making it
_CLEARLY = 1.5  # how many times slower spinning must be before the caller blocks
_PAUSE_SECONDS = 200e-6
_AFTER_A_PAUSE = 3  # waits after a pause that are not counted
_LEFT_OUT_AT_MOST = 16  # uncounted waits in one trial: some callers always pause
_REMEMBERED = 2 * _TRIES
_IN_VAIN = float("inf")
_KINDS_REMEMBERED = 256  # kinds of requests


class Patience:
    """What was learned about one kind of request."""

    __slots__ = (
        "_ended", "_looked", "_looks", "_may_leave_out", "_slept", "_unsettled", "_waits",
        "is_trying",
    )  # fmt: skip

    def __init__(self) -> None:
        self.is_trying = False  # whether the current wait is to be timed
        self._waits = _PERIOD - _BEFORE - 1
        self._looks = MOST_LOOKS
        self._looked: deque[float] = deque(maxlen=_REMEMBERED)
        self._slept: deque[float] = deque(maxlen=_REMEMBERED)
        self._ended = 0.0
        self._unsettled = 0
        self._may_leave_out = _LEFT_OUT_AT_MOST

    def looks(self) -> int:
        """Return how many times to spin in this wait before blocking."""
        self._waits = waits = (self._waits + 1) % _PERIOD
        self.is_trying = waits < 2 * _TRIES
        if not self.is_trying:
            return self._looks
        return MOST_LOOKS if waits < _TRIES else 0

    def learn(self, began: float, ended: float, *, was_seen: bool) -> None:
        """Record one wait; `was_seen`: the answer arrived while spinning."""
        if began - self._ended > _PAUSE_SECONDS:
            self._unsettled = _AFTER_A_PAUSE
        self._ended = ended
        if self._unsettled and self._may_leave_out:
            self._unsettled -= 1
            self._may_leave_out -= 1
            self._waits -= 1  # repeat this wait of the trial
            return
        seconds = ended - began
        if self._waits < _TRIES:
            self._looked.append(seconds if was_seen else _IN_VAIN)
            return
        self._slept.append(seconds)
        if self._waits == 2 * _TRIES - 1:
            self._may_leave_out = _LEFT_OUT_AT_MOST
            if self._looked:  # else every spinning wait of the trial was aborted
                is_worse = _usual(self._looked) > _CLEARLY * _usual(self._slept)
                self._looks = 0 if is_worse else MOST_LOOKS


class Learned:
    """The patience for each kind of request. A kind is its meta bytes and the layout of its arrays:
    steps of other sizes take other times."""

    def __init__(self) -> None:
        self._by_kind: dict[tuple[bytes, int], Patience] = {}

    def of(self, meta: bytes, layout: int) -> Patience:
        """Return what was learned about this kind."""
        known = self._by_kind.get((meta, layout))
        if known is None:
            if len(self._by_kind) >= _KINDS_REMEMBERED:
                self._by_kind.clear()
            known = self._by_kind[meta, layout] = Patience()
        return known


def _usual(times: deque[float]) -> float:
    """Return the mean without the slowest time. Not the median: where other programs use the cores,
    spinning is fast most of the time and very slow otherwise."""
    kept = sorted(times)[: max(1, len(times) - 1)]
    return sum(kept) / len(kept)
