"""Models for the tests of the pool with real workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def unlike_any_other() -> Any:
    """A variable that starts with random values, different at every open."""
    import tensorflow as tf

    v1 = tf.compat.v1
    value = v1.get_variable(
        "value", [64], initializer=v1.random_normal_initializer(), use_resource=True
    )
    change = v1.assign_add(value, tf.ones([64]))
    return {}, {"value": value.read_value(), "change": change}


def linear_regression() -> Any:
    """Weights and momentum: state that a training loop builds up step by step."""
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 4], name="x")
    y = v1.placeholder(tf.float32, [None], name="y")
    w = v1.get_variable("w", [4], initializer=v1.zeros_initializer(), use_resource=True)
    loss = tf.reduce_mean(tf.square(tf.linalg.matvec(x, w) - y))
    train = v1.train.MomentumOptimizer(0.05, 0.9).minimize(loss, name="train")
    return {"x": x, "y": y}, {"w": w.read_value(), "loss": loss, "train": train}


def slow_to_open(path: str) -> Callable[[], Any]:
    """A function whose opening ends when the file at `path` appears."""

    def build() -> Any:
        import os
        import time

        while not os.path.exists(path):
            time.sleep(0.01)
        return lambda a: a

    return build


def growing() -> Any:
    """A function that keeps 4 MiB more with every call."""
    kept: list[Any] = []

    def grow(a: Any) -> Any:
        kept.append(bytearray(b"x" * (4 * 2**20)))
        return a

    return grow


def dies_at_load() -> Any:
    """A model that kills its worker while it is opened, after printing a word."""
    import os
    import sys

    print("my last words", file=sys.stderr, flush=True)
    os._exit(3)
