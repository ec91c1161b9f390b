"""The model that every system runs: one dense layer and a softmax, small or 400 MiB large."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Model:
    """`softmax(x @ w + b)`. `w` is random: TensorFlow would keep a second copy of a constant."""

    inputs: int
    outputs: int

    @property
    def variable_bytes(self) -> int:
        return 4 * (self.inputs * self.outputs + self.outputs)

    def batch(self, rows: int) -> np.ndarray:
        return np.random.default_rng(rows).random((rows, self.inputs), dtype=np.float32)

    def wrong_batch(self) -> np.ndarray:
        """Return a batch with one column too few: every system refuses it with its own error."""
        return self.batch(1)[:, :-1]


def wide() -> Model:
    """Return a model with 400 MiB of variables, to measure memory. Tests make it smaller."""
    side = int(os.environ.get("LEAVES_NOTHING_SIDE", "10240"))
    return Model(side, side)


def small() -> Model:
    """Return softmax regression, 784 inputs and 10 classes, to measure the cost of a call."""
    return Model(784, 10)


def build(model: Model) -> Any:
    """Build the TensorFlow graph in the default graph; return its inputs and outputs by name."""
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, model.inputs], name="x")
    shape = [model.inputs, model.outputs]
    initial = v1.random_uniform_initializer(-0.05, 0.05, seed=1)
    w = v1.get_variable("w", shape, initializer=initial)
    b = v1.get_variable("b", [model.outputs], initializer=v1.zeros_initializer())
    return {"x": x}, {"y": tf.nn.softmax(tf.matmul(x, w) + b, name="y")}


class HeldSession:
    """A raw session on the model, for the systems that keep one in another process."""

    def __init__(self, model: Model, target: str = "") -> None:
        import tensorflow as tf

        v1 = tf.compat.v1
        graph = v1.Graph()
        with graph.as_default():
            inputs, outputs = build(model)
            self._session = v1.Session(target, graph=graph)
            self._session.run(v1.global_variables_initializer())
        self._x, self._y = inputs["x"], outputs["y"]

    def run(self, value: np.ndarray) -> Any:
        return self._session.run(self._y, {self._x: value})

    def close(self) -> None:
        self._session.close()
