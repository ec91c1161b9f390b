"""The one place where the class behind a program's sessions is chosen, and where they are counted.

The program's own `tf.Session`, and the sessions that TensorFlow's training and Keras helpers
open for it, all come from here. `tensorflow.python.client.session.Session` itself is never
replaced: TensorFlow finds its own class by that name.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import weakref
from dataclasses import dataclass, field
from typing import Any

from sojourn.compat.legacy.namespaces import Namespace
from sojourn.values import Place, Receipt
from sojourn.values.places import NOWHERE

ISOLATIONS = ("process", "inline", "raw")
_SOJOURN = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


@dataclass(slots=True)
class Stay:
    """One session of the program, from the line that opened it to its end."""

    number: int
    kind: str
    opened: Place
    runs: int = 0
    closed: bool = False
    receipt: Receipt | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        held = self.receipt
        return {
            "session": self.number,
            "kind": self.kind,
            "opened": str(self.opened),
            "steps": held.runs if held else self.runs,
            "held_bytes": held.held_bytes if held else None,
            "returned_bytes": held.returned_bytes if held else None,
            "left_open": not self.closed,
        }


@dataclass(slots=True)
class Ledger:
    """Every session of one program run."""

    stays: list[Stay] = field(default_factory=list)
    sessions: list[tuple[Stay, weakref.ref[Any]]] = field(default_factory=list)
    _numbers: Any = field(default_factory=lambda: itertools.count(1))

    def opened(self, session: Any) -> Stay:
        stay = Stay(next(self._numbers), _kind(session), users_line())
        self.stays.append(stay)
        self.sessions.append((stay, weakref.ref(session)))
        return stay

    def close_what_is_open(self) -> None:
        """The program has ended: end its sessions, and keep that it had left them open."""
        for stay, reference in reversed(self.sessions):
            session = reference()
            if session is None or stay.closed:
                continue
            with contextlib.suppress(Exception):
                _end(session)
            stay.receipt = getattr(session, "receipt", None)
            stay.closed = False


def _end(session: Any) -> None:
    super(type(session), session).close()


def _kind(session: Any) -> str:
    return next((c.__name__ for c in type(session).__mro__ if c.__module__ == __name__), "Session")


def make_classes(ledger: Ledger, isolation: str) -> tuple[type, type]:
    """`Session` and `InteractiveSession` of that isolation, counted in `ledger`."""
    session, interactive = _bases(isolation)
    return _counted(session, ledger, "Session"), _counted(interactive, ledger, "InteractiveSession")


def _bases(isolation: str) -> tuple[type, type]:
    import tensorflow.compat.v1 as tf

    if isolation == "raw":
        return tf.Session, tf.InteractiveSession
    return tf.Session, tf.InteractiveSession


def _counted(base: Any, ledger: Ledger, name: str) -> type:
    class Counted(base):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._stay = ledger.opened(self)

        def run(self, *args: Any, **kwargs: Any) -> Any:
            self._stay.runs += 1
            return super().run(*args, **kwargs)

        def close(self) -> None:
            super().close()
            self._stay.closed = True
            self._stay.receipt = getattr(self, "receipt", None)

    Counted.__name__ = Counted.__qualname__ = name
    Counted.__doc__ = base.__doc__
    return Counted


def route(session: type, interactive: type) -> Namespace:
    """Give TensorFlow's own helpers that open sessions these classes; return their `session`."""
    from tensorflow.python.client import session as original
    from tensorflow.python.keras import backend
    from tensorflow.python.training import session_manager

    routed = Namespace(
        "tensorflow.python.client.session",
        (original,),
        {"Session": session, "InteractiveSession": interactive},
    )
    session_manager.session = routed
    backend.session_module = routed
    return routed


def users_line() -> Place:
    """The innermost line that belongs to neither sojourn, TensorFlow nor Keras."""
    libraries = tuple(
        os.path.dirname(os.path.abspath(file)) + os.sep
        for name in ("tensorflow", "keras")
        if (file := getattr(sys.modules.get(name), "__file__", None))
    )
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_SOJOURN, *libraries)) and not file.endswith("contextlib.py"):
            return Place(file, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return NOWHERE
