"""What every layer of `tf.contrib.layers` does around its computation.

Scopes and variable names as contrib had them, collections, normalizer and activation; and the
initializers.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

CHANNELS_FIRST = ("NCHW", "NCW", "NCDHW")


def xavier_initializer(uniform: bool = True, seed: Any = None, dtype: Any = tf.float32) -> Any:
    """Weights scaled by the number of inputs and outputs."""
    kind = tf.glorot_uniform_initializer if uniform else tf.glorot_normal_initializer
    return kind(seed=seed, dtype=dtype)


def variance_scaling_initializer(
    factor: float = 2.0,
    mode: str = "FAN_IN",
    uniform: bool = False,
    seed: Any = None,
    dtype: Any = tf.float32,
) -> Any:
    """Weights scaled by the number of inputs, outputs, or their mean."""
    # The truncated normal of contrib had the variance after truncation that this one keeps too.
    return tf.variance_scaling_initializer(
        scale=factor,
        mode=mode.lower(),
        distribution="uniform" if uniform else "truncated_normal",
        seed=seed,
        dtype=dtype,
    )


xavier_initializer_conv2d = xavier_initializer


def collect(outputs: Any, collections: Any) -> Any:
    names = collections if isinstance(collections, (list, tuple)) else [collections]
    for name in names:
        if name:
            tf.add_to_collection(name, outputs)
    return outputs


def finish(
    outputs: Any, normalizer: Any, normalizer_params: Any, activation: Any, collections: Any
) -> Any:
    if normalizer is not None:
        outputs = normalizer(outputs, **(normalizer_params or {}))
    if activation is not None:
        outputs = activation(outputs)
    return collect(outputs, collections)


def remember(layer: Any, variables_collections: Any) -> None:
    """Put the layer's variables where contrib put them."""
    for variable in layer.variables:
        tf.add_to_collection(tf.GraphKeys.MODEL_VARIABLES, variable)
        chosen = variables_collections
        if isinstance(chosen, dict):
            chosen = chosen.get(
                {"kernel": "weights", "bias": "biases"}.get(
                    variable.op.name.split("/")[-1], variable.op.name.split("/")[-1]
                )
            )
        for name in [chosen] if isinstance(chosen, str) else chosen or []:
            tf.add_to_collection(name, variable)


def _named(getter: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    # contrib called them weights and biases: checkpoints and get_variables_by_name want that.
    head, _, last = name.rpartition("/")
    last = {"kernel": "weights", "bias": "biases"}.get(last, last)
    return getter(f"{head}/{last}" if head else last, *args, **kwargs)


def scoped(scope: Any, default: str, inputs: Any, reuse: Any) -> Any:
    return tf.variable_scope(scope, default, [inputs], reuse=reuse, custom_getter=_named)


def zeros_if_default(initializer: Any) -> Any:
    return tf.zeros_initializer() if initializer in ("zeros", None) else initializer
