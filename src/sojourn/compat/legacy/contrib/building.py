"""What every layer of `tf.contrib.layers` does around its computation.

Scopes and variable names as contrib had them, collections, normalizer and activation; and the
initializers.
"""

from __future__ import annotations

import types
from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy.contrib.layer_utils import collect_named_outputs

CHANNELS_FIRST = ("NCHW", "NCW", "NCDHW")
_NAMES = {"kernel": "weights", "bias": "biases"}


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


def collect(outputs: Any, collections: Any, alias: str | None = None) -> Any:
    """Put a layer's result into `collections`, known there by the layer's scope, or as `alias`."""
    named = alias or tf.get_variable_scope().name
    return collect_named_outputs(collections, named, outputs)


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
    known = {variable.ref() for variable in tf.get_collection(tf.GraphKeys.MODEL_VARIABLES)}
    for variable in layer.variables:
        if variable.ref() not in known:  # one that is shared is listed once: savers take the list
            tf.add_to_collection(tf.GraphKeys.MODEL_VARIABLES, variable)
        last = variable.op.name.split("/")[-1]
        for name in collections_of(variables_collections, _NAMES.get(last, last)):
            tf.add_to_collection(name, variable)


def collections_of(given: Any, name: str) -> list[str]:
    """The collections that a program names for the variable `name` of a layer."""
    chosen = given.get(name) if isinstance(given, dict) else given
    return [chosen] if isinstance(chosen, str) else list(chosen or [])


def _named(getter: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    # contrib called them weights and biases: checkpoints and get_variables_by_name want that.
    head, _, last = name.rpartition("/")
    last = _NAMES.get(last, last)
    return getter(f"{head}/{last}" if head else last, *args, **kwargs)


def scoped(scope: Any, default: str, inputs: Any, reuse: Any) -> Any:
    return tf.variable_scope(scope, default, [inputs], reuse=reuse, custom_getter=_named)


def settings(
    activation_fn: Any = tf.nn.relu,
    normalizer_fn: Any = None,
    normalizer_params: Any = None,
    weights_initializer: Any = None,
    weights_regularizer: Any = None,
    biases_initializer: Any = "zeros",
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """The arguments that every layer with weights has last, by name."""
    return types.SimpleNamespace(**locals())


def run_layer(kind: Any, default: str, inputs: Any, sizes: Any, of: Any, **named: Any) -> Any:
    """The output of a layer of that kind and those `settings`."""
    with scoped(of.scope, default, inputs, of.reuse) as here:
        layer = kind(
            *sizes,
            use_bias=of.normalizer_fn is None and of.biases_initializer is not None,
            kernel_initializer=of.weights_initializer or xavier_initializer(),
            bias_initializer=zeros_if_default(of.biases_initializer),
            kernel_regularizer=of.weights_regularizer,
            bias_regularizer=of.biases_regularizer,
            trainable=of.trainable,
            name=here.name,
            _scope=here,
            _reuse=of.reuse,
            **named,
        )
        outputs = layer(tf.convert_to_tensor(inputs))
        remember(layer, of.variables_collections)
        return finish_as(outputs, of)


def finish_as(outputs: Any, of: Any) -> Any:
    """What comes behind a layer of those `settings`."""
    return finish(
        outputs, of.normalizer_fn, of.normalizer_params, of.activation_fn, of.outputs_collections
    )


def zeros_if_default(initializer: Any) -> Any:
    return tf.zeros_initializer() if initializer in ("zeros", None) else initializer
