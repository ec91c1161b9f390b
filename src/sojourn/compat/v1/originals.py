"""Methods of TensorFlow's session classes that work even after the classes are replaced.

TensorFlow writes `super(Session, self)`, which looks `Session` up in its module at each call.
Tests and tools replace that name by another class, and then a subclass of TensorFlow's class
would recurse endlessly. Copies of the methods avoid this: their globals are the original names.
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
