"""What happened, told to whoever listens. Telling costs next to nothing when nobody does.

An event is a frozen value. Subscribers are called on the thread that caused it, one after the
other; one that raises is reported once on the `sojourn.events` logger and never disturbs the
session.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sojourn.values import Place

_log = logging.getLogger("sojourn.events")


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a session, lease, worker, zygote or pool."""

    kind: str  # "session.ready", "worker.died", "lease.granted", ...
    session: str = ""
    place: Place | None = None  # the user's line that caused it
    host_bytes: int = 0
    detail: Mapping[str, Any] = field(default_factory=dict)
    monotonic: float = field(default_factory=time.monotonic)
    wall: float = field(default_factory=time.time)


Subscriber = Callable[[Event], None]

_subscribers: tuple[Subscriber, ...] = ()
_lock = threading.Lock()


def subscribe(subscriber: Subscriber) -> Callable[[], None]:
    """Call `subscriber` with every event from now on, until the returned function is called."""
    global _subscribers
    with _lock:
        _subscribers = (*_subscribers, subscriber)

    def unsubscribe() -> None:
        global _subscribers
        with _lock:
            _subscribers = tuple(s for s in _subscribers if s is not subscriber)

    return unsubscribe


def is_listening() -> bool:
    """Whether anybody would hear an event. The call path asks before it builds one."""
    return bool(_subscribers)


def emit(
    kind: str,
    session: str = "",
    place: Place | None = None,
    host_bytes: int = 0,
    **detail: Any,
) -> None:
    """Tell everybody who listens."""
    if not _subscribers:
        return
    event = Event(kind, session, place, host_bytes, detail)
    for subscriber in _subscribers:
        try:
            subscriber(event)
        except Exception:
            _log.exception("a subscriber failed on %s", kind)
