"""The regularizers of `tf.contrib.layers`: functions that return a penalty on weights, or None."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

Regularizer = Callable[[Any], Any]


def _checked(scale: Any) -> float:
    if isinstance(scale, int) or not isinstance(scale, float) or scale < 0.0:
        raise ValueError(f"scale must be a float that is not negative: {scale!r}")
    return scale


def l1_regularizer(scale: float, scope: Any = None) -> Regularizer:
    """Return a regularizer that computes ``scale * sum(|w|)``."""
    if _checked(scale) == 0.0:
        return lambda _: None

    def l1(weights: Any) -> Any:
        with tf.name_scope(scope or "l1_regularizer"):
            return tf.multiply(tf.cast(scale, weights.dtype.base_dtype), _sum_abs(weights))

    return l1


def _sum_abs(weights: Any) -> Any:
    return tf.reduce_sum(tf.abs(weights))


def l2_regularizer(scale: float, scope: Any = None) -> Regularizer:
    """Return a regularizer that computes ``scale * sum(w ** 2) / 2``."""
    if _checked(scale) == 0.0:
        return lambda _: None

    def l2(weights: Any) -> Any:
        with tf.name_scope(scope or "l2_regularizer"):
            return tf.multiply(tf.cast(scale, weights.dtype.base_dtype), tf.nn.l2_loss(weights))

    return l2


def l1_l2_regularizer(
    scale_l1: float = 1.0, scale_l2: float = 1.0, scope: Any = None
) -> Regularizer:
    """Return the sum of the L1 and L2 regularizers."""
    return sum_regularizer([l1_regularizer(scale_l1), l2_regularizer(scale_l2)], scope)


def sum_regularizer(regularizers: Sequence[Any], scope: Any = None) -> Regularizer:
    """Return a regularizer that is the sum of several."""
    kept = [r for r in regularizers if r is not None]

    def total(weights: Any) -> Any:
        parts = [part for part in (r(weights) for r in kept) if part is not None]
        return tf.add_n(parts, name=scope) if parts else None

    return total


def apply_regularization(regularizer: Regularizer, weights_list: Any = None) -> Any:
    """Return the penalty over `weights_list` (default: the weights collection), and add it to the
    collection of regularization losses."""
    weights = tf.get_collection(tf.GraphKeys.WEIGHTS) if weights_list is None else weights_list
    parts = [part for part in map(regularizer, weights) if part is not None]
    total = tf.add_n(parts) if parts else tf.constant(0.0)
    tf.add_to_collection(tf.GraphKeys.REGULARIZATION_LOSSES, total)
    return total
