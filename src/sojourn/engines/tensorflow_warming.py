"""Do TensorFlow's one-time work in a process before the first model is loaded.

A tiny model passes through all stages of a model: it is built, initialised, compiled for both
executors, run and closed. Later models cannot notice: no eager context is started, and names and
seeds are as before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sojourn.engines.base import Host
from sojourn.kinds import Load

_MODELS = 3  # enough for Python to specialize its code, and to copy all shared pages it writes to
_RUNS = 4  # alternating between both executors; the first run of each compiles


def warm() -> None:
    """Run the tiny model several times."""
    for _ in range(_MODELS):
        _run_one()


def _run_one() -> None:
    host = Host()
    host.call("load", Load(kind="builder", live=_tiny), ())
    facts, _ = host.call("plan", {"feeds": ["x"], "fetches": ["y"]}, ())
    step = host.step(facts["number"])
    for _ in range(_RUNS):
        step.run([np.ones((1, 4), np.float32)])
    host.close()


def _tiny() -> Any:
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 4], name="x")
    w = v1.get_variable("w", [4, 2], initializer=v1.glorot_uniform_initializer(seed=1))
    b = v1.get_variable("b", [2], initializer=v1.zeros_initializer())
    return {"x": x}, {"y": tf.nn.softmax(tf.matmul(x, w) + b)}
