"""Chooses the class of a program's sessions, and counts the sessions.

The program's own `tf.Session`, and the class of the sessions that TensorFlow's training and Keras
helpers open, are both made here. `tensorflow.python.client.session.Session` itself is never
replaced: TensorFlow finds its own class by that name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sojourn.compat.legacy import numpy_habits, placement
from sojourn.compat.legacy.account import Ledger
from sojourn.compat.legacy.namespaces import Namespace

Change = Callable[[Any], Any]


def make_classes(
    ledger: Ledger, isolation: str, era: str, strict_placement: bool = False
) -> tuple[type, type]:
    """Return `Session` and `InteractiveSession` with this isolation, counted in `ledger`."""
    (session, interactive), settings = _bases(isolation)
    ledger.isolation = isolation
    configure: Change = _as_it_is
    give: Change = _as_it_is
    if era == "tf1":
        configure = config_of_the_time
        if numpy_habits.needs_old_arrays():
            give = numpy_habits.as_old
    if not strict_placement:
        configure = placement.softly(configure)
    return (
        _counted(session, ledger, "Session", settings, configure, give),
        _counted(interactive, ledger, "InteractiveSession", settings, configure, give),
    )


def _as_it_is(value: Any) -> Any:
    return value


def _bases(isolation: str) -> tuple[tuple[Any, Any], dict[str, Any]]:
    """Return the base classes, and the arguments that choose the isolation."""
    import tensorflow.compat.v1 as tf

    if isolation == "raw":
        return (tf.Session, tf.InteractiveSession), {}
    from sojourn.compat import v1

    return (v1.Session, v1.InteractiveSession), {"isolation": isolation}


def config_of_the_time(config: Any) -> Any:
    """Return the configuration with arithmetic optimization off, unless the program sets it.

    This optimization is newer than these programs, and bypasses tensors that they feed: a program
    that feeds the result of a transpose would fail with advice to feed the placeholder before it.
    """
    import tensorflow.compat.v1 as tf
    from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

    if config is not None and not isinstance(config, tf.ConfigProto):
        return config  # an invalid type: TensorFlow has a better error for it
    changed = tf.ConfigProto()
    if config is not None:
        changed.CopyFrom(config)
    options = changed.graph_options.rewrite_options
    if options.arithmetic_optimization == RewriterConfig.DEFAULT:
        options.arithmetic_optimization = RewriterConfig.OFF
    return changed


def _counted(
    base: Any,
    ledger: Ledger,
    name: str,
    settings: dict[str, Any],
    configure: Change,
    give: Change,
) -> type:
    from sojourn.compat.v1.places import users_line

    class Counted(base):  # type: ignore[misc]
        def __init__(
            self, target: Any = "", graph: Any = None, config: Any = None, **kwargs: Any
        ) -> None:
            super().__init__(target, graph, configure(config), **{**settings, **kwargs})
            self._entry = ledger.opened(self, name, users_line())
            link = getattr(self, "_link", None)
            self._entry.account = getattr(link, "stay", None)
            self._watch = placement.Watch(ledger.fallbacks)

        def run(self, *args: Any, **kwargs: Any) -> Any:
            self._entry.calls += not self._closed
            result = super().run(*args, **kwargs)
            self._watch.look(self)
            return give(result)

        def close(self) -> None:
            if not self._entry.is_closed and self._entry.runs:
                self._watch.look(self, is_last=True)
            super().close()
            self._entry.has_closed(getattr(self, "receipt", None))

    Counted.__name__ = Counted.__qualname__ = name
    Counted.__doc__ = base.__doc__
    return Counted


def route(session: type, interactive: type) -> Namespace:
    """Make TensorFlow's own helpers open these sessions; return the module that they now use."""
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
