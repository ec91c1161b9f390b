"""Methods of TensorFlow's two classes that still work when ours stands under their names.

TensorFlow writes `super(Session, self)` and finds `Session` among the names of its module. Another
class in its place, which is how tests and tools exchange it, would send a subclass of
TensorFlow's round in circles. The same code with names of its own does not care.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from tensorflow.python.client import session as tf_session

_OWN_NAMES = dict(vars(tf_session))


def _on_its_own(method: Any) -> Callable[..., Any]:
    return FunctionType(
        method.__code__, _OWN_NAMES, method.__name__, method.__defaults__, method.__closure__
    )


TFSession = tf_session.Session
TFInteractiveSession = tf_session.InteractiveSession
open_session = _on_its_own(TFSession.__init__)
open_interactive_session = _on_its_own(TFInteractiveSession.__init__)
close_interactive_session = _on_its_own(TFInteractiveSession.close)
