"""Events as OpenTelemetry spans: `sojourn.open`, `sojourn.run` and `sojourn.close`.

Nothing here runs, and OpenTelemetry is not imported, until you call `trace()`. A span of a
step is a child of the span that was current in the thread that ran it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from sojourn.events.bus import Event, subscribe

_Key = tuple[int, Any]  # the pid, and the session's number in that process


def trace(tracer: Any = None) -> Callable[[], None]:
    """Make a span of every open, run and close from now on, until the returned function is called.

    Requires `opentelemetry-api`. Without a `tracer`, a tracer of the global provider is used.
    """
    try:
        from opentelemetry import trace as api
    except ImportError:
        raise ImportError("tracing needs the package opentelemetry-api") from None
    if tracer is None:
        from sojourn._version import __version__

        tracer = api.get_tracer("sojourn", __version__)
    elif not hasattr(tracer, "start_span"):
        raise TypeError(
            f"tracer must have start_span, as OpenTelemetry's tracers do, not {tracer!r}"
        )
    failed = api.Status(api.StatusCode.ERROR)
    return subscribe(_Spans(tracer, failed), every_step=True, wants_bytes=False)


class _Spans:
    def __init__(self, tracer: Any, failed: Any) -> None:
        self._tracer = tracer
        self._failed = failed
        self._lock = threading.RLock()
        self._opening: dict[_Key, Any] = {}
        self._closing: dict[_Key, Any] = {}

    def __call__(self, event: Event) -> None:
        act = _ACTS.get(event.kind)
        if act is not None:
            act(self, event, (event.pid, event.detail.get("serial")))

    def _on_opening(self, event: Event, key: _Key) -> None:
        span = self._start("sojourn.open", event)
        with self._lock:
            self._opening[key] = span

    def _on_ready(self, event: Event, key: _Key) -> None:
        with self._lock:
            span = self._opening.pop(key, None)
        if span is not None:
            _set(span, "sojourn.held_bytes", event.host_bytes)
            span.end(_nanoseconds(event.wall))

    def _on_step(self, event: Event, key: _Key) -> None:
        seconds = event.detail["seconds"]
        span = self._start("sojourn.run", event, ago=seconds)
        if event.detail["failed"]:
            span.set_status(self._failed)
        span.end(_nanoseconds(event.wall))

    def _on_draining(self, event: Event, key: _Key) -> None:
        span = self._start("sojourn.close", event)
        with self._lock:
            self._closing[key] = span

    def _on_failed(self, event: Event, key: _Key) -> None:
        """End the span of an open if the session was closed or broke before it was ready."""
        with self._lock:
            span = self._opening.pop(key, None)
        if span is not None:
            span.set_status(self._failed)
            span.end(_nanoseconds(event.wall))

    def _on_receipt(self, event: Event, key: _Key) -> None:
        with self._lock:
            span = self._closing.pop(key, None)
        if span is None:
            return
        receipt = event.detail["receipt"]
        for name in ("held_bytes", "returned_bytes", "peak_bytes", "runs", "clean"):
            span.set_attribute(f"sojourn.{name}", receipt[name])
        if not receipt["clean"]:
            span.set_status(self._failed)
        span.end(_nanoseconds(event.wall))

    def _start(self, name: str, event: Event, ago: float = 0.0) -> Any:
        span = self._tracer.start_span(name, start_time=_nanoseconds(event.wall - ago))
        span.set_attribute("sojourn.session", event.session)
        if event.place is not None:
            span.set_attribute("code.file.path", event.place.file)
            span.set_attribute("code.line.number", event.place.line)
        return span


_ACTS: dict[str, Callable[[_Spans, Event, _Key], None]] = {
    "session.opening": _Spans._on_opening,
    "session.ready": _Spans._on_ready,
    "session.step": _Spans._on_step,
    "session.draining": _Spans._on_draining,
    "session.closed": _Spans._on_failed,
    "session.broken": _Spans._on_failed,
    "session.receipt": _Spans._on_receipt,
}


def _set(span: Any, name: str, amount: int) -> None:
    if amount:
        span.set_attribute(name, amount)


def _nanoseconds(wall: float) -> int:
    return int(wall * 1e9)
