"""Events as records of the standard `logging`, under `sojourn.<what>`, silent by default.

A line has every fact of its event: `worker.died bert: worker_pid=42 how='was killed by SIGKILL'`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from sojourn.events.bus import Event
from sojourn.values import format_bytes, format_seconds

_root = logging.getLogger("sojourn")
_root.addHandler(logging.NullHandler())

# WARNING: events that need attention. Events that are not listed are logged at DEBUG.
_LEVELS = {
    "session.broken": logging.WARNING,
    "session.forgotten": logging.WARNING,
    "worker.died": logging.WARNING,
    "worker.stuck": logging.WARNING,
    "spare.died": logging.WARNING,
    "spare.stuck": logging.WARNING,
    "sandbox.incomplete": logging.WARNING,
    "engine.refused": logging.WARNING,
    "lease.overdue": logging.WARNING,
    "pool.park_failed": logging.WARNING,
    "pool.state_lost": logging.WARNING,
    "pool.overrun": logging.WARNING,
    "pool.close_failed": logging.WARNING,
    "model.failed": logging.WARNING,
    "engine.chosen": logging.INFO,
    "session.ready": logging.INFO,
    "session.closed": logging.INFO,
    "session.receipt": logging.INFO,
    "pool.updated": logging.INFO,
    "pool.unregistered": logging.INFO,
    "model.loaded": logging.INFO,
    "model.unloaded": logging.INFO,
    "model.retired": logging.INFO,
}
# Facts that are of no use in a line of text. They are in the record's extras all the same.
_NOT_IN_LINES = {"serial", "histogram"}


_loggers = tuple(
    logging.getLogger(f"sojourn.{what}")
    for what in sorted({kind.partition(".")[0] for kind in _LEVELS} | {"zygote"})
)


def is_heard() -> bool:
    """Whether the program has set up logging, so that a record would reach a handler."""
    if logging.root.handlers or len(_root.handlers) > 1:
        return True
    return any(logger.handlers for logger in _loggers)


def write(event: Event) -> None:
    """Log one event, with its fields as extras (`sojourn_session`, `sojourn_kind`, ...)."""
    level = _LEVELS.get(event.kind, logging.DEBUG)
    if event.detail.get("error"):
        level = max(level, logging.WARNING)
    logger = logging.getLogger(f"sojourn.{event.kind.partition('.')[0]}")
    if not logger.isEnabledFor(level):
        return
    extra = {f"sojourn_{key}": value for key, value in event.to_dict().items()}
    logger.log(level, "%s", line(event), extra=extra)


def line(event: Event) -> str:
    """Return an event as one line: its kind, session, place and facts."""
    parts = [f"{event.kind} {event.session}".rstrip()]
    if event.place:
        parts.append(f"at {event.place}")
    facts = dict(event.detail)
    if event.host_bytes and "receipt" not in facts:
        facts["host_bytes"] = event.host_bytes
    details = [
        _receipt(value) if key == "receipt" else f"{key}={_value(key, value)}"
        for key, value in facts.items()
        if value is not None and key not in _NOT_IN_LINES
    ]
    return " ".join(parts) + (f": {' '.join(details)}" if details else "")


def _value(key: str, value: Any) -> str:
    if key.endswith("bytes") and isinstance(value, int):
        return format_bytes(value).replace(" ", "")
    if key.endswith("seconds") and isinstance(value, int | float):
        return format_seconds(value).replace(" ", "")
    text = str(value)
    return repr(text) if not text or any(c.isspace() or c in "'\"" for c in text) else text


def _receipt(receipt: Mapping[str, Any]) -> str:
    names = ("held_bytes", "returned_bytes", "peak_bytes", "seconds", "runs", "clean", "note")
    shown = {name: receipt[name] for name in names if receipt.get(name) not in (None, "")}
    if not receipt.get("clean", True):
        shown["residue"] = receipt.get("residue")
    return " ".join(f"{key}={_value(key, value)}" for key, value in shown.items())
