"""The networks of the canned estimators: from feature columns to logits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy import layers
from sojourn.compat.legacy.estimator.specs import ModeKeys

_dense = layers.namespace().dense
_OPTIMIZERS = {
    "Adagrad": tf.train.AdagradOptimizer,
    "Adam": tf.train.AdamOptimizer,
    "Ftrl": tf.train.FtrlOptimizer,
    "RMSProp": tf.train.RMSPropOptimizer,
    "SGD": tf.train.GradientDescentOptimizer,
}


def optimizer(given: Any, rate: float) -> Any:
    """Return the optimizer for a name or from a function that makes one, or the given one."""
    if isinstance(given, str):
        if given not in _OPTIMIZERS:
            raise ValueError(
                f"Unsupported optimizer name: {given}. Supported names are: {sorted(_OPTIMIZERS)}"
            )
        return _OPTIMIZERS[given](learning_rate=rate)
    made = given() if callable(given) else given
    if not hasattr(made, "minimize"):
        raise ValueError(f"The given object is not an Optimizer instance. Given: {made}")
    return made


def linear_rate(columns: Iterable[Any] | None, most: float) -> float:
    """Return the default learning rate of a linear model: smaller with more columns."""
    return min(most, 1.0 / math.sqrt(len(list(columns or ())) or 1))


def require_dict(features: Any) -> None:
    """Raise unless the features are a dict: feature columns find their tensors by name."""
    if not isinstance(features, dict):
        raise ValueError(
            f"features should be a dictionary of `Tensor`s. Given type: {type(features)}"
        )


def linear(features: Any, columns: Iterable[Any], units: int, combiner: str = "sum") -> Any:
    """Return logits with a weight per feature value and a bias; variables: ``linear_model``."""
    found: dict[Any, Any] = {}
    result = tf.feature_column.linear_model(
        features, columns, units=units, sparse_combiner=combiner, cols_to_vars=found
    )
    bias = found.pop("bias")
    tf.summary.histogram("bias", bias[0] if isinstance(bias, list) else bias)
    return result


def dnn(
    features: Any,
    columns: Iterable[Any],
    hidden_units: Iterable[int],
    units: int,
    mode: str,
    activation: Callable[..., Any] | None = tf.nn.relu,
    dropout: float | None = None,
    batch_norm: bool = False,
) -> Any:
    """Return logits of dense layers; variables: ``hiddenlayer_N`` and ``logits``."""
    training = mode == ModeKeys.TRAIN
    with tf.variable_scope("input_from_feature_columns"):
        net = tf.feature_column.input_layer(features, columns)
    for number, width in enumerate(hidden_units):
        name = f"hiddenlayer_{number}"
        net = _dense(
            net,
            width,
            activation=activation,
            kernel_initializer=tf.glorot_uniform_initializer(),
            name=name,
        )
        if dropout is not None and training:
            net = tf.nn.dropout(net, rate=dropout)
        if batch_norm:
            net = layers.batch_normalization(
                net, momentum=0.999, training=training, name=f"batchnorm_{number}"
            )
        _summarize(net, name)
    result = _dense(net, units, kernel_initializer=tf.glorot_uniform_initializer(), name="logits")
    _summarize(result, "logits")
    return result


def _summarize(values: Any, name: str) -> None:
    tf.summary.scalar(f"{name}/fraction_of_zero_values", tf.nn.zero_fraction(values))
    tf.summary.histogram(f"{name}/activation", values)
