"""What the workers of `soak.py` run. Every worker imports it, so it imports little itself."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

PLAIN, FAIL, SLEEP, SPAWN, DIE, ECHO, MANY = range(7)


def misbehave(amount: Any, how: Any) -> None:
    """Do what a step may do besides its work."""
    if how == FAIL:
        raise ValueError("as it was asked to")
    if how == SLEEP:
        time.sleep(float(amount))
    elif how == SPAWN:
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execvp("sleep", ["sleep", "600"])
            os._exit(0)
        os.wait()
    elif how == DIE:
        os._exit(3)


def function() -> Any:
    """A sum that the worker keeps, and ways to misbehave."""
    total = 0.0

    def step(amount: Any, how: Any) -> Any:
        nonlocal total
        if how == PLAIN:
            total += float(amount)
        elif how == ECHO:
            return amount
        elif how == MANY:
            return np.full(int(amount), total)
        else:
            misbehave(amount, how)
        return np.array(total)

    return step


def graph() -> Any:
    """The same sum as a TensorFlow variable."""
    import tensorflow as tf

    v1 = tf.compat.v1

    def step(amount: Any, how: Any) -> Any:
        misbehave(amount, how)
        return np.float64(0)

    amount = v1.placeholder(tf.float64, [], name="amount")
    how = v1.placeholder(tf.int64, [], name="how")
    words = v1.placeholder(tf.string, [None], name="words")
    sum_ = v1.get_variable("sum", initializer=np.float64(0), use_resource=True)
    return {"amount": amount, "how": how, "words": words}, {
        "total": v1.assign_add(sum_, amount),
        "output": tf.numpy_function(step, [amount, how], tf.float64),
        "many": tf.fill([tf.cast(amount, tf.int32)], sum_.read_value()),
        "same": tf.identity(words),
    }


def dying(how: int) -> Callable[[], Any]:
    """A model whose worker ends while it loads: by a signal, or by itself."""

    def build() -> Any:
        if how:
            os.kill(os.getpid(), how)
            signal.pause()
        os._exit(3)

    return build


def unfit() -> Any:
    """A model that cannot be built."""
    raise ValueError("as it was asked to")


def endless(told: str = "") -> Callable[[], Any]:
    """A model that never finishes loading; it creates a file to report that it has begun."""

    def build() -> Any:
        if told:
            with open(told, "w"):
                pass
        time.sleep(600)

    return build


def hungry() -> Any:
    """A function that allocates as much memory as requested."""
    return lambda size: np.ones(int(size), np.uint8).sum()


# -- functions that are isolated ----------------------------------------------------------------


def add(a: Any, b: Any) -> Any:
    """A call."""
    return a + b


def fail() -> None:
    """A call that raises."""
    raise KeyError("as it was asked to")


def leave() -> None:
    """A call that never returns."""
    sys.stdout.flush()
    os._exit(3)


def counting(end: int) -> Any:
    """A stream: first its process, then numbers."""
    yield os.getpid()
    yield from range(end)


# -- models in files ----------------------------------------------------------------------------


def write_files(folder: str) -> None:
    """A SavedModel that doubles, one that reads a file, and a Keras model that doubles."""
    import keras
    import tensorflow as tf

    v1 = tf.compat.v1

    def write(name: str, build: Callable[[Any], Any]) -> None:
        with tf.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder(tf.float32, [None], name="x")
            factor = v1.get_variable("factor", initializer=2.0, use_resource=True)
            y = build(x * factor)
            session.run(v1.global_variables_initializer())
            builder = v1.saved_model.Builder(os.path.join(folder, name))
            signature = v1.saved_model.predict_signature_def({"x": x}, {"y": y})
            builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
            builder.save()

    secret = os.path.join(folder, "secret")
    with open(secret, "w") as file:
        file.write("secret")
    write("doubling", lambda x: x)
    write("reading", lambda x: tf.strings.join([tf.io.read_file(secret), tf.as_string(x[0])]))
    twice = keras.layers.Dense(1, use_bias=False, kernel_initializer=keras.initializers.Constant(2))
    keras.Sequential([keras.Input((1,), name="x"), twice]).save(os.path.join(folder, "twice.keras"))
