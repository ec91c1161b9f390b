"""Finds the user's line, outside TensorFlow's own frames."""

from __future__ import annotations

import os
import threading

import tensorflow as tf

from sojourn.values import Place, caller
from sojourn.values.places import HERE

_TENSORFLOW = os.path.dirname(os.path.abspath(tf.__file__)) + os.sep
_NOT_THE_USERS = (HERE, _TENSORFLOW, threading.__file__)


def users_line() -> Place:
    """Return the innermost line that belongs to neither sojourn nor TensorFlow."""
    return caller(_NOT_THE_USERS)
