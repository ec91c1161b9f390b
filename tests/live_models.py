"""Opens models that live in this process; run as a script, because it loads TensorFlow."""

from __future__ import annotations

import logging
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import sojourn

v1 = tf.compat.v1
X = np.arange(8, dtype=np.float32).reshape(2, 4)


def same(got: Any, expected: Any) -> None:
    np.testing.assert_allclose(got, np.asarray(expected), rtol=1e-4, atol=1e-5)


def refused(told: str, *args: Any, **kwargs: Any) -> None:
    with pytest.raises(sojourn.ModelError, match=told):
        sojourn.open(*args, **kwargs)


@keras.utils.register_keras_serializable()
class Twice(keras.layers.Layer):  # type: ignore[misc]
    """A layer of the user's own, which the worker never sees."""

    def call(self, x: Any) -> Any:
        return x * 2


class Subclassed(keras.Model):  # type: ignore[misc]
    """A model without symbolic inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(3)

    def call(self, x: Any) -> Any:
        return self.dense(x)


def keras_models() -> None:
    model = keras.Sequential(
        [keras.Input((4,), name="x"), Twice(), keras.layers.Dense(2, name="y")]
    )
    with sojourn.open(model) as session:
        assert str(session.signature) == "(x: float32[?, 4]) -> (y: float32[?, 2])"
        same(session(x=X), model(X))
        kernel = model.layers[-1].kernel
        kernel.assign(kernel + 1)  # a copy was opened: changes here do not reach it
        assert not np.allclose(session(x=X), np.asarray(model(X)))

    model = Subclassed()
    refused("does not say what it takes", model)
    with sojourn.open(model, inputs={"x": sojourn.TensorSpec("float32", (None, 4))}) as session:
        same(session(x=X), model(X))
    with sojourn.open(model) as session:  # the model has been called meanwhile
        same(session(input=X), model(X))

    named = keras.Input((4,), name="a")
    model = keras.Model({"a": named}, {"p": keras.layers.Dense(2)(named), "q": named + 1})
    with sojourn.open(model) as session:
        got = session.run(["q", "p"], {"a": X})
        same(got[0], X + 1)
        same(got[1], model({"a": X})["p"])


def functions() -> None:
    scale = tf.Variable(2.0)
    words = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(["a", "b"], [1.0, 2.0]), -1.0
    )

    @tf.function
    def f(x: Any, word: Any) -> Any:
        return {"y": x * scale, "parts": (words.lookup(word), tf.reduce_sum(x))}

    refused("it was never called", f)
    power = tf.function(lambda x, n: x**n)
    with sojourn.open(power.get_concrete_function(tf.TensorSpec([None]), 3)) as session:
        assert list(session.signature.inputs) == ["x"]  # 3 is part of the function now
        same(session(x=[1, 2]), [1, 8])
    square = tf.function(lambda x, n: x**n)
    square(tf.constant([1.0, 2.0]), n=2)
    with sojourn.open(square) as session:  # called in only one way, so that one is used
        same(session(x=[3, 4]), [9, 16])
    inputs = {"x": sojourn.TensorSpec("float32", (None,)), "word": sojourn.TensorSpec("string", ())}
    with sojourn.open(f, inputs=inputs) as session:
        got = session(x=[1, 2], word="b")
        same(got["y"], [2, 4])
        same(got["parts/output_0"], 2)
        same(got["parts/output_1"], 3)

    @tf.function(input_signature=[tf.TensorSpec([], name="by")])
    def grow(by: Any) -> Any:
        return scale.assign_add(by)

    with sojourn.open(grow) as session:
        same(session(by=1), 3)
        same(session(by=1), 4)
        session.reset()
        same(session(by=1), 3)
    same(scale, 2)


def graphs() -> None:
    with v1.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None], name="x")
        w = v1.get_variable("w", initializer=tf.constant(3.0))
        tf.multiply(x, w, name="y")
        tf.identity(w, name="unused")
    version = graph.version
    with sojourn.open(graph, outputs=["y"]) as session:
        same(session(x=[1, 2]), [3, 6])  # its variables are initialised
        same(session.run("w:0"), 3)
    assert graph.version == version, "the user's graph was touched"
    with sojourn.open(graph, outputs=["y"], device="cpu", isolation="inline") as session:
        same(session(x=[1, 2]), [3, 6])


def inline() -> None:
    model = keras.Sequential([keras.Input((4,), name="x"), keras.layers.Dense(2)])
    with sojourn.open(model, isolation="inline") as session:
        same(session(x=X), model(X))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)  # to which opening a model adds nothing but our own
    keras_models()
    inline()
    functions()
    graphs()
    print("all is well")
