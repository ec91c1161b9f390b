"""The normalizers of `tf.contrib.layers`."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy import layers as tf_layers
from sojourn.compat.legacy.contrib.building import CHANNELS_FIRST, finish, remember
from sojourn.compat.legacy.contrib.framework import add_arg_scope


@add_arg_scope
def batch_norm(
    inputs: Any,
    decay: float = 0.999,
    center: bool = True,
    scale: bool = False,
    epsilon: float = 0.001,
    activation_fn: Any = None,
    param_initializers: Any = None,
    param_regularizers: Any = None,
    updates_collections: Any = tf.GraphKeys.UPDATE_OPS,
    is_training: Any = True,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    batch_weights: Any = None,
    fused: bool | None = None,
    data_format: str = "NHWC",
    zero_debias_moving_mean: bool = False,
    scope: Any = None,
    renorm: bool = False,
    **rest: Any,
) -> Any:
    """Normalize over the batch. ``updates_collections=None`` moves the averages at once."""
    start = param_initializers or {}
    penalty = param_regularizers or {}
    with tf.variable_scope(scope, "BatchNorm", [inputs], reuse=reuse) as here:
        inputs = tf.convert_to_tensor(inputs)
        layer = tf_layers.BatchNormalization(
            axis=1 if data_format in CHANNELS_FIRST else -1,
            momentum=decay,
            epsilon=epsilon,
            center=center,
            scale=scale,
            beta_initializer=start.get("beta"),
            gamma_initializer=start.get("gamma"),
            moving_mean_initializer=start.get("moving_mean"),
            moving_variance_initializer=start.get("moving_variance"),
            beta_regularizer=penalty.get("beta"),
            gamma_regularizer=penalty.get("gamma"),
            renorm=renorm,
            trainable=trainable,
            name=here.name,
            _scope=here,
            _reuse=reuse,
        )
        before = set(tf.get_collection(tf.GraphKeys.UPDATE_OPS))
        outputs = layer(inputs, training=is_training)
        remember(layer, variables_collections)
        if updates_collections != tf.GraphKeys.UPDATE_OPS:
            listed = tf.get_collection_ref(tf.GraphKeys.UPDATE_OPS)
            updates = [op for op in listed if op not in before]
            listed[:] = [op for op in listed if op in before]
            if updates_collections is None:
                with tf.control_dependencies(updates):
                    outputs = tf.identity(outputs)
            else:
                for update in updates:
                    tf.add_to_collection(updates_collections, update)
        return finish(outputs, None, None, activation_fn, outputs_collections)


@add_arg_scope
def layer_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    activation_fn: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    scope: Any = None,
) -> Any:
    """Normalize each example by itself."""
    with tf.variable_scope(scope, "LayerNorm", [inputs], reuse=reuse):
        inputs = tf.convert_to_tensor(inputs)
        rank = inputs.shape.ndims
        shape = inputs.shape[begin_params_axis:]
        axes = list(range(begin_norm_axis % rank, rank))
        mean, variance = tf.nn.moments(inputs, axes, keep_dims=True)
        # contrib used 1e-12, and 1e-3 for half precision.
        epsilon = 1e-3 if inputs.dtype == tf.float16 else 1e-12
        make = functools.partial(tf.get_variable, shape=shape, trainable=trainable)
        beta = make("beta", initializer=tf.zeros_initializer()) if center else None
        gamma = make("gamma", initializer=tf.ones_initializer()) if scale else None
        outputs = tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)
        return finish(outputs, None, None, activation_fn, outputs_collections)


@add_arg_scope
def instance_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-6,
    activation_fn: Any = None,
    reuse: Any = None,
    trainable: bool = True,
    data_format: str = "NHWC",
    scope: Any = None,
    **rest: Any,
) -> Any:
    """Normalize each example and channel by itself."""
    with tf.variable_scope(scope, "InstanceNorm", [inputs], reuse=reuse):
        inputs = tf.convert_to_tensor(inputs)
        rank = inputs.shape.ndims
        channel = 1 if data_format in CHANNELS_FIRST else rank - 1
        axes = [axis for axis in range(1, rank) if axis != channel]
        mean, variance = tf.nn.moments(inputs, axes, keep_dims=True)
        size = inputs.shape[channel : channel + 1]
        along = [1] * channel + [-1] + [1] * (rank - 1 - channel)  # the channel's axis
        make = functools.partial(tf.get_variable, shape=size, trainable=trainable)
        beta = make("beta", initializer=tf.zeros_initializer()) if center else None
        gamma = make("gamma", initializer=tf.ones_initializer()) if scale else None
        beta, gamma = (None if v is None else tf.reshape(v, along) for v in (beta, gamma))
        outputs = tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)
        return finish(outputs, None, None, activation_fn, None)
