"""The steps that all layers of `tf.contrib.layers` share around their computation.

These are scopes, variable names as in contrib, collections, normalizer and activation. The
initializers are here too.
"""

from __future__ import annotations

import types
from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy.contrib.layer_utils import collect_named_outputs

CHANNELS_FIRST = ("NCHW", "NCW", "NCDHW")
_NAMES = {"kernel": "weights", "bias": "biases"}


def xavier_initializer(uniform: bool = True, seed: Any = None, dtype: Any = tf.float32) -> Any:
    """Return an initializer that scales weights by the number of inputs and outputs."""
    kind = tf.glorot_uniform_initializer if uniform else tf.glorot_normal_initializer
    return kind(seed=seed, dtype=dtype)


def variance_scaling_initializer(
    factor: float = 2.0,
    mode: str = "FAN_IN",
    uniform: bool = False,
    seed: Any = None,
    dtype: Any = tf.float32,
) -> Any:
    """Return an initializer that scales weights by the number of inputs, outputs, or their mean."""
    # Contrib's truncated normal had this variance after truncation; so does this initializer.
    return tf.variance_scaling_initializer(
        scale=factor,
        mode=mode.lower(),
        distribution="uniform" if uniform else "truncated_normal",
        seed=seed,
        dtype=dtype,
    )


xavier_initializer_conv2d = xavier_initializer


def collect(outputs: Any, collections: Any, alias: str | None = None) -> Any:
    """Add a layer's output to `collections`, named `alias` or else after the layer's scope."""
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
    """Add the layer's variables to the same collections as contrib did."""
    known = {variable.ref() for variable in tf.get_collection(tf.GraphKeys.MODEL_VARIABLES)}
    for variable in layer.variables:
        if variable.ref() not in known:  # list a shared variable once: savers use this list
            tf.add_to_collection(tf.GraphKeys.MODEL_VARIABLES, variable)
        last = variable.op.name.split("/")[-1]
        for name in collections_of(variables_collections, _NAMES.get(last, last)):
            tf.add_to_collection(name, variable)


def collections_of(given: Any, name: str) -> list[str]:
    """Return the collections that the program requests for the layer's variable `name`."""
    chosen = given.get(name) if isinstance(given, dict) else given
    return [chosen] if isinstance(chosen, str) else list(chosen or [])


def _named(getter: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    # Checkpoints and get_variables_by_name need contrib's names: weights and biases.
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
    """Name the trailing arguments that all layers with weights share."""
    return types.SimpleNamespace(**locals())


def run_layer(kind: Any, default: str, inputs: Any, sizes: Any, of: Any, **named: Any) -> Any:
    """Build a layer of class `kind` with the `settings` in `of`; return its output."""
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
    """Apply the normalizer, activation and collections that the `settings` in `of` request."""
    return finish(
        outputs, of.normalizer_fn, of.normalizer_params, of.activation_fn, of.outputs_collections
    )


def zeros_if_default(initializer: Any) -> Any:
    return tf.zeros_initializer() if initializer in ("zeros", None) else initializer
