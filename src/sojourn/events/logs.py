"""Events as records of the standard `logging`, under `sojourn.<what>`, quiet by default."""

from __future__ import annotations

import logging

from sojourn.events.bus import Event

_root = logging.getLogger("sojourn")
_root.addHandler(logging.NullHandler())

# What somebody should look at; everything else is for those who want to know.
_LEVELS = {
    "session.broken": logging.WARNING,
    "session.forgotten": logging.WARNING,
    "worker.died": logging.WARNING,
    "worker.stuck": logging.WARNING,
    "sandbox.incomplete": logging.WARNING,
    "engine.refused": logging.WARNING,
    "lease.overdue": logging.WARNING,
    "pool.park_failed": logging.WARNING,
    "pool.state_lost": logging.WARNING,
    "pool.overrun": logging.WARNING,
    "pool.close_failed": logging.WARNING,
    "engine.chosen": logging.INFO,
    "session.ready": logging.INFO,
    "session.closed": logging.INFO,
    "session.receipt": logging.INFO,
}


_loggers = tuple(
    logging.getLogger(f"sojourn.{what}")
    for what in sorted({kind.partition(".")[0] for kind in _LEVELS} | {"zygote"})
)


def is_heard() -> bool:
    """Whether the program has set up logging, so that a record would get anywhere."""
    if logging.root.handlers or len(_root.handlers) > 1:
        return True
    return any(logger.handlers for logger in _loggers)


def write(event: Event) -> None:
    """Log one event, with its fields as extras (`sojourn_session`, `sojourn_kind`, ...)."""
    level = _LEVELS.get(event.kind, logging.DEBUG)
    logger = logging.getLogger(f"sojourn.{event.kind.partition('.')[0]}")
    if not logger.isEnabledFor(level):
        return
    where = f" at {event.place}" if event.place else ""
    extra = {f"sojourn_{key}": value for key, value in event.to_dict().items()}
    logger.log(level, "%s %s%s", event.kind, event.session, where, extra=extra)
