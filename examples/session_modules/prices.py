"""A module with a session of its own."""

import tensorflow as tf

from sojourn.compat.v1 import Session

_graph = tf.Graph()
with _graph.as_default():
    _given = tf.compat.v1.placeholder(tf.float32, [None])
    _total = tf.reduce_sum(_given) * 1.2

session = Session(graph=_graph, name="prices")


def total(given: list[float]) -> str:
    return f"{session.run(_total, {_given: given}):.1f}"


def close() -> None:
    session.close()
