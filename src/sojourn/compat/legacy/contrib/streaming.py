"""`tf.contrib.metrics`: the metrics of `tf.metrics`, which took predictions before labels here."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import tensorflow.compat.v1 as tf


def _predictions_first(function: Any) -> Any:
    if list(inspect.signature(function).parameters)[:2] != ["labels", "predictions"]:
        return function

    @functools.wraps(function)
    def call(predictions: Any, labels: Any, *args: Any, **kwargs: Any) -> Any:
        return function(labels, predictions, *args, **kwargs)

    return call


STREAMING = {
    f"streaming_{name}": _predictions_first(getattr(tf.metrics, name))
    for name in dir(tf.metrics)
    if not name.startswith("_")
}


def accuracy(predictions: Any, labels: Any, weights: Any = None, name: Any = None) -> Any:
    """The share of predictions that are right, in this batch."""
    right = tf.cast(tf.equal(predictions, labels), tf.float32)
    if weights is None:
        return tf.reduce_mean(right, name=name)
    return tf.div(tf.reduce_sum(right * weights), tf.reduce_sum(weights), name=name)
