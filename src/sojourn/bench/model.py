"""The model that every contestant runs: softmax regression, 784 inputs, 10 classes."""

from __future__ import annotations

from typing import Any

import numpy as np


def build() -> Any:
    """Build the model in the default graph; return its inputs and outputs by name."""
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 784], name="x")
    w = v1.get_variable("w", [784, 10], initializer=v1.glorot_uniform_initializer(seed=1))
    b = v1.get_variable("b", [10], initializer=v1.zeros_initializer())
    return {"x": x}, {"y": tf.nn.softmax(tf.matmul(x, w) + b, name="y")}


def batch(size: int) -> np.ndarray:
    """Return a batch of inputs."""
    return np.random.default_rng(size).random((size, 784), dtype=np.float32)


def holding(megabytes: int) -> Any:
    """Return a builder of a model whose variables take this many MiB."""

    def build_big() -> Any:
        import tensorflow as tf

        v1 = tf.compat.v1
        big = v1.get_variable("big", [megabytes, 2**18], initializer=v1.ones_initializer())
        return {}, {"sum": tf.reduce_sum(big)}

    return build_big
