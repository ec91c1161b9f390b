"""Events and their subscribers.

An event is a frozen value. Subscribers are called on the thread that caused it, one after the
other; one that raises is reported on the `sojourn.events` logger and never disturbs the session.

A session runs thousands of steps per second, and each takes it from ready to running and back.
Only subscribers that ask for `every_step` receive these two events for each step; all others get a
`session.steps` event with the count and the latencies, at most once per second.
"""

from __future__ import annotations

import contextlib
import logging
import os
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
    pid: int = field(default_factory=os.getpid)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            **self.detail,
            "kind": self.kind,
            "session": self.session,
            "place": str(self.place) if self.place else None,
            "host_bytes": self.host_bytes,
            "monotonic": self.monotonic,
            "wall": self.wall,
            "pid": self.pid,
        }


Subscriber = Callable[[Event], None]

_subscribers: tuple[Subscriber, ...] = ()
_step_subscribers: tuple[Subscriber, ...] = ()
_recorders: tuple[Subscriber, ...] = ()
_lock = threading.Lock()
_log_event: Subscriber = lambda event: None  # noqa: E731
_is_logged: Callable[[], bool] = bool


def log_with(write: Subscriber, is_heard: Callable[[], bool]) -> None:
    """Log events with `write` while `is_heard` says that the program has set up logging."""
    global _log_event, _is_logged
    _log_event, _is_logged = write, is_heard


def subscribe(
    subscriber: Subscriber, *, every_step: bool = False, wants_bytes: bool = True
) -> Callable[[], None]:
    """Call `subscriber` with every event from now on, until the returned function is called.

    A subscriber that subscribes twice is called twice. With `every_step` it also receives every
    single step. Unless some subscriber `wants_bytes`, sessions are not measured just for events. A
    subscriber may close the session that an event is about, but not run it.
    """
    global _subscribers, _step_subscribers, _recorders
    if not callable(subscriber):
        raise TypeError(f"subscriber must be callable, not {subscriber!r}")

    def listen(event: Event) -> None:  # a new object, so that each subscription can end alone
        subscriber(event)

    with _lock:
        _subscribers = (*_subscribers, listen)
        if wants_bytes:
            _recorders = (*_recorders, listen)
        if every_step:
            _step_subscribers = (*_step_subscribers, listen)

    def unsubscribe() -> None:
        global _subscribers, _step_subscribers, _recorders
        with _lock:
            _subscribers = tuple(s for s in _subscribers if s is not listen)
            _recorders = tuple(s for s in _recorders if s is not listen)
            _step_subscribers = tuple(s for s in _step_subscribers if s is not listen)

    return unsubscribe


def is_listening() -> bool:
    """Whether events have listeners. Call it before collecting facts that are costly to measure."""
    return bool(_subscribers) or _is_logged()


def wants_bytes() -> bool:
    """Whether some subscriber needs to know how much memory a session holds."""
    return bool(_recorders)


def hears_steps() -> bool:
    """Whether some subscriber receives every single step."""
    return bool(_step_subscribers)


def emit(
    kind: str,
    session: str = "",
    place: Place | None = None,
    host_bytes: int = 0,
    *,
    is_step: bool = False,
    **detail: Any,
) -> None:
    """Call every subscriber with a new event."""
    listeners = _step_subscribers if is_step else _subscribers
    if not is_step and _is_logged():
        listeners = (_log_event, *listeners)
    if not listeners:
        return
    event = Event(kind, session, place, host_bytes, detail)
    for subscriber in listeners:
        try:
            subscriber(event)
        except BaseException as error:
            is_main = threading.current_thread() is threading.main_thread()
            if is_main and not isinstance(error, Exception):
                raise  # perhaps a Ctrl-C; on another thread, it would end one that others wait for
            # A logging handler of the user may fail as well, or be the subscriber that failed.
            with contextlib.suppress(Exception if is_main else BaseException):
                _log.exception("a subscriber failed on %s", kind)
