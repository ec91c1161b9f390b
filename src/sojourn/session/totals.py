"""Sums over all sessions of this process since it began, for `sojourn.metrics()`.

The numbers of an open session are read from its status page; when the session ends, they are added
to the sums here. Both happen under one lock, so that a total never decreases.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sojourn.probes.status_page import BUCKETS, NANOSECONDS
from sojourn.values import Receipt

if TYPE_CHECKING:
    from sojourn.session.lifecycle import Lifecycle


@dataclass(slots=True)
class Steps:
    """The durations of the steps of some sessions, as a histogram."""

    histogram: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    seconds: float = 0.0

    @property
    def count(self) -> int:
        return sum(self.histogram)

    def add(self, session: Lifecycle) -> None:
        """Add the steps of one session."""
        page = session.page
        self.histogram = [a + b for a, b in zip(self.histogram, page.histogram(), strict=True)]
        self.seconds += page.words[NANOSECONDS] / 1e9

    def copy(self) -> Steps:
        return Steps(self.histogram, self.seconds)


@dataclass(slots=True)
class Totals:
    """Sums over sessions."""

    steps: dict[str, Steps] = field(default_factory=dict)  # by model
    counts: Counter[str] = field(default_factory=Counter)  # opened, closed, broken, forgotten
    held_bytes: int = 0  # by closed sessions, according to their receipts
    returned_bytes: int = 0
    closing_seconds: float = 0.0

    def add(self, session: Lifecycle) -> None:
        """Add the steps of one session."""
        self.steps.setdefault(session.model, Steps()).add(session)


_lock = threading.Lock()
_ended = Totals()
_live: weakref.WeakSet[Lifecycle] = weakref.WeakSet()


def enter(session: Lifecycle) -> None:
    """Register a session that is being opened."""
    with _lock:
        _live.add(session)
        _ended.counts["opened"] += 1


def leave(session: Lifecycle) -> None:
    """Unregister a session that has ended; its page must still be open."""
    with _lock:
        if session in _live:
            _live.discard(session)
            _ended.add(session)
            _ended.counts["closed"] += 1


def count(what: str) -> None:
    """Count one event of this kind."""
    with _lock:
        _ended.counts[what] += 1


def add_receipt(receipt: Receipt) -> None:
    """Add the memory that a session held and gave back."""
    with _lock:
        _ended.held_bytes += receipt.held_bytes + sum(receipt.held_on_device.values())
        _ended.returned_bytes += receipt.returned_bytes + sum(receipt.returned_on_device.values())
        _ended.closing_seconds += receipt.seconds
        if not receipt.clean:
            _ended.counts["with_residue"] += 1


def now() -> tuple[Totals, list[Lifecycle]]:
    """Return the sums over all sessions so far, and the open sessions."""
    with _lock:
        live = sorted(_live, key=lambda session: session.serial)
        sums = Totals(
            {model: steps.copy() for model, steps in _ended.steps.items()},
            Counter(_ended.counts),
            _ended.held_bytes,
            _ended.returned_bytes,
            _ended.closing_seconds,
        )
        for session in live:
            sums.add(session)
    return sums, live


def _begin_anew_in_child() -> None:
    # A fork starts at zero: its parent reports its own sums.
    global _lock, _ended
    _lock = threading.Lock()
    _ended = Totals()
    _live.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew_in_child)
