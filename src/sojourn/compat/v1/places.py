"""The user's line, behind TensorFlow's own frames."""

from __future__ import annotations

import os
import sys
import threading

import tensorflow as tf

from sojourn.values import Place
from sojourn.values.places import NOWHERE, at

_SOJOURN = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_TENSORFLOW = os.path.dirname(os.path.abspath(tf.__file__)) + os.sep
_NOT_THE_USERS = (_SOJOURN, _TENSORFLOW, threading.__file__)


def users_line() -> Place:
    """The innermost line that belongs to neither sojourn nor TensorFlow."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_NOT_THE_USERS) and not file.endswith("contextlib.py"):
            return at(file, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return NOWHERE
