"""Small models that the tests build inside workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def softmax_regression() -> Any:
    """784 inputs, 10 classes."""
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 784], name="x")
    w = v1.get_variable("w", [784, 10], initializer=v1.ones_initializer())
    b = v1.get_variable("b", [10], initializer=v1.zeros_initializer())
    return {"x": x}, {"y": tf.nn.softmax(tf.matmul(x, w) + b)}


def counter() -> Any:
    """One variable that steps can change."""
    import tensorflow as tf

    v1 = tf.compat.v1
    amount = v1.placeholder(tf.float32, [], name="amount")
    value = v1.get_variable("value", [], initializer=v1.zeros_initializer(), use_resource=True)
    add = v1.assign_add(value, amount)
    store = v1.assign(value, amount)
    with tf.control_dependencies([store]):
        stored = tf.no_op(name="stored")
    return {"amount": amount}, {"total": add, "value": value.read_value(), "store": stored}


def holding(megabytes: int) -> Callable[[], Any]:
    """Return a builder of a model whose variables take this much memory."""

    def build() -> Any:
        import tensorflow as tf

        v1 = tf.compat.v1
        big = v1.get_variable(
            "big", [megabytes, 2**18], initializer=v1.ones_initializer(), use_resource=True
        )
        return {}, {"sum": tf.reduce_sum(big)}

    return build


def adder() -> Any:
    """A plain function."""

    def add(a: Any, b: Any) -> Any:
        return a + b

    return add


def sleeper() -> Any:
    """A plain function that takes its time."""

    def sleep(seconds: Any) -> Any:
        import time

        time.sleep(float(seconds))
        return seconds

    return sleep


def slow_step() -> Any:
    """A TensorFlow step that runs for a long time in C++."""
    import tensorflow as tf

    v1 = tf.compat.v1
    n = v1.placeholder(tf.int32, [], name="n")
    x = tf.ones([600, 600])
    _, y = tf.while_loop(lambda i, _: i < n, lambda i, y: (i + 1, tf.matmul(y, x) * 1e-3), [0, x])
    return {"n": n}, {"y": tf.reduce_sum(y)}


def holds_the_interpreter_lock() -> Any:
    """A function that sleeps in C without letting other threads run."""

    def sleep(seconds: Any) -> Any:
        import ctypes

        ctypes.PyDLL(None).sleep(int(seconds))
        return seconds

    return sleep


def counting_up() -> Any:
    """Counts to `n` in C++, one at a time: a step that takes as long as one likes."""
    import tensorflow as tf

    n = tf.compat.v1.placeholder(tf.int32, [], name="n")
    zero = tf.constant(0)
    total = tf.while_loop(lambda i: i < n, lambda i: i + 1, [zero], parallel_iterations=1)
    return {"n": n}, {"total": tf.identity(total[0] if isinstance(total, list) else total)}


def wide_counter() -> Any:
    """Like `counter`, with enough values to fill some pages of a disk."""
    import tensorflow as tf

    v1 = tf.compat.v1
    amount = v1.placeholder(tf.float32, [], name="amount")
    value = v1.get_variable("value", [5000], initializer=v1.zeros_initializer(), use_resource=True)
    add = v1.assign_add(value, tf.fill([5000], amount))
    store = v1.assign(value, tf.fill([5000], amount))
    with tf.control_dependencies([store]):
        stored = tf.no_op(name="stored")
    return {"amount": amount}, {"total": add[0], "value": value.read_value(), "store": stored}
