"""The normalizers of `tf.contrib.layers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.framework.smart_cond import smart_cond
from tensorflow.python.training.moving_averages import assign_moving_average

from sojourn.compat.legacy import layers as tf_layers
from sojourn.compat.legacy.contrib.building import CHANNELS_FIRST, collections_of, finish, remember
from sojourn.compat.legacy.contrib.framework import add_arg_scope, model_variable


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
    """Normalize over the batch. ``updates_collections=None`` updates averages with the output."""
    start = param_initializers or {}
    penalty = param_regularizers or {}
    with tf.variable_scope(scope, "BatchNorm", [inputs], reuse=reuse) as here:
        inputs = tf.convert_to_tensor(inputs)
        kind = _Debiased if zero_debias_moving_mean else tf_layers.BatchNormalization
        layer = kind(
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


class _Debiased(tf_layers.BatchNormalization):
    """Batch normalization whose moving mean is not biased towards its initial value."""

    def _moved(self, average: Any, value: Any, training: Any) -> Any:
        if average is not self.moving_mean:
            return super()._moved(average, value, training)
        kept, value = self.momentum, tf.stop_gradient(value)
        return smart_cond(
            training,
            lambda: assign_moving_average(average, value, kept, zero_debias=True),
            lambda: tf.identity(average),
        )


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
    """Normalize each example separately."""
    with tf.variable_scope(scope, "LayerNorm", [inputs], reuse=reuse):
        inputs = tf.convert_to_tensor(inputs)
        rank = inputs.shape.ndims
        shape = inputs.shape[begin_params_axis:]
        axes = list(range(begin_norm_axis % rank, rank))
        mean, variance = tf.nn.moments(inputs, axes, keep_dims=True)
        # The same values as in contrib: 1e-12, and 1e-3 for half precision.
        epsilon = 1e-3 if inputs.dtype == tf.float16 else 1e-12
        beta, gamma = _shift_and_scale(center, scale, shape, trainable, variables_collections)
        outputs = tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)
        return finish(outputs, None, None, activation_fn, outputs_collections)


@add_arg_scope
def instance_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-6,
    activation_fn: Any = None,
    param_initializers: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    data_format: str = "NHWC",
    scope: Any = None,
) -> Any:
    """Normalize each channel of each example separately."""
    with tf.variable_scope(scope, "InstanceNorm", [inputs], reuse=reuse):
        inputs = tf.convert_to_tensor(inputs)
        rank = inputs.shape.ndims
        channel = 1 if data_format in CHANNELS_FIRST else rank - 1
        axes = [axis for axis in range(1, rank) if axis != channel]
        mean, variance = tf.nn.moments(inputs, axes, keep_dims=True)
        size = inputs.shape[channel : channel + 1]
        along = [1] * channel + [-1] + [1] * (rank - 1 - channel)  # the channel axis
        pair = _shift_and_scale(
            center, scale, size, trainable, variables_collections, param_initializers
        )
        beta, gamma = (None if v is None else tf.reshape(v, along) for v in pair)
        outputs = tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)
        return finish(outputs, None, None, activation_fn, outputs_collections)


@add_arg_scope
def group_norm(
    inputs: Any,
    groups: int = 32,
    channels_axis: int = -1,
    reduction_axes: Sequence[int] = (-3, -2),
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-6,
    activation_fn: Any = None,
    param_initializers: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
    mean_close_to_zero: bool = False,
) -> Any:
    """Normalize each group of channels of each example separately."""
    with tf.variable_scope(scope, "GroupNorm", [inputs], reuse=reuse):
        inputs = tf.convert_to_tensor(inputs)
        rank = inputs.shape.ndims
        channel = channels_axis % rank
        channels = inputs.shape[channel].value
        if channels % groups:
            raise ValueError(f"{groups} groups do not divide {channels} channels")
        size = tf.shape(inputs)
        parts = [size[:channel], [groups, channels // groups], size[channel + 1 :]]
        split = tf.reshape(inputs, tf.concat(parts, 0))
        axes = [axis % rank for axis in reduction_axes]
        axes = [axis + (axis > channel) for axis in axes] + [channel + 1]
        mean, variance = tf.nn.moments(split, axes, keep_dims=True)
        normal = tf.nn.batch_normalization(split, mean, variance, None, None, epsilon)
        outputs = tf.reshape(normal, size)
        outputs.set_shape(inputs.shape)
        along = [1] * channel + [-1] + [1] * (rank - 1 - channel)
        beta, gamma = _shift_and_scale(
            center, scale, [channels], trainable, variables_collections, param_initializers
        )
        if gamma is not None:
            outputs *= tf.reshape(gamma, along)
        if beta is not None:
            outputs += tf.reshape(beta, along)
        return finish(outputs, None, None, activation_fn, outputs_collections)


def _shift_and_scale(
    center: bool, scale: bool, shape: Any, trainable: bool, collections: Any, start: Any = None
) -> tuple[Any, Any]:
    """Create `beta` and `gamma`; None for one that is not requested."""

    def make(name: str, default: Any) -> Any:
        return model_variable(
            name,
            shape,
            initializer=(start or {}).get(name, default),
            trainable=trainable,
            collections=collections_of(collections, name),
        )

    beta = make("beta", tf.zeros_initializer()) if center else None
    return beta, make("gamma", tf.ones_initializer()) if scale else None
