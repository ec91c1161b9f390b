"""`learn.ops` and `learn.models` of `tf.contrib.learn`, from before 1.0."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy import layers, removed

_dense = layers.namespace().dense


def categorical_variable(
    tensor_in: Any, n_classes: int, embedding_size: int, name: str = "categorical_variable"
) -> Any:
    """Return the embedding of each class, from the variable ``name/name_embeddings``."""
    with tf.variable_scope(name):
        table = tf.get_variable(f"{name}_embeddings", [n_classes, embedding_size])
        return tf.nn.embedding_lookup(table, tensor_in)


def logistic_regression(
    x: Any, y: Any, class_weight: Any = None, init_mean: Any = None, init_stddev: float = 1.0
) -> tuple[Any, Any]:
    """Return the class probabilities and the loss; `y` is one-hot."""
    with tf.variable_scope("logistic_regression"):
        logits = _dense(x, int(y.shape[-1]), kernel_initializer=_start(init_mean, init_stddev))
        if class_weight is not None:
            logits = logits * class_weight
        return tf.nn.softmax(logits), tf.losses.softmax_cross_entropy(y, logits)


def linear_regression(
    x: Any, y: Any, init_mean: Any = None, init_stddev: float = 1.0
) -> tuple[Any, Any]:
    """Return the predictions and the mean squared error."""
    with tf.variable_scope("linear_regression"):
        is_flat = y.shape.ndims == 1
        width = 1 if is_flat else int(y.shape[-1])
        found = _dense(x, width, kernel_initializer=_start(init_mean, init_stddev))
        found = tf.squeeze(found, [1]) if is_flat else found
        return found, tf.losses.mean_squared_error(y, found)


def _start(mean: Any, stddev: float) -> Any:
    return None if mean is None else tf.random_normal_initializer(mean, stddev)


__getattr__ = removed.missing_name("tf.contrib.learn.ops")
