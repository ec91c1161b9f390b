"""The one place where the class behind a program's sessions is chosen, and where they are counted.

The program's own `tf.Session`, and the sessions that TensorFlow's training and Keras helpers
open for it, all come from here. `tensorflow.python.client.session.Session` itself is never
replaced: TensorFlow finds its own class by that name.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from sojourn.compat.legacy.account import Ledger
from sojourn.compat.legacy.namespaces import Namespace
from sojourn.values import Place
from sojourn.values.places import NOWHERE

_SOJOURN = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


def make_classes(ledger: Ledger, isolation: str) -> tuple[type, type]:
    """`Session` and `InteractiveSession` of that isolation, counted in `ledger`."""
    (session, interactive), settings = _bases(isolation)
    ledger.isolation = isolation
    return (
        _counted(session, ledger, "Session", settings),
        _counted(interactive, ledger, "InteractiveSession", settings),
    )


def _bases(isolation: str) -> tuple[tuple[Any, Any], dict[str, Any]]:
    """The classes to build on, and the arguments that choose the isolation."""
    import tensorflow.compat.v1 as tf

    if isolation == "raw":
        return (tf.Session, tf.InteractiveSession), {}
    from sojourn.compat import v1

    return (v1.Session, v1.InteractiveSession), {"isolation": isolation}


def _counted(base: Any, ledger: Ledger, name: str, settings: dict[str, Any]) -> type:
    class Counted(base):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**settings, **kwargs})
            self._stay = ledger.opened(self, name, users_line())

        def run(self, *args: Any, **kwargs: Any) -> Any:
            self._stay.steps += 1
            return super().run(*args, **kwargs)

        def close(self) -> None:
            super().close()
            self._stay.has_closed(getattr(self, "receipt", None))

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
