"""The convolutions and poolings of `tf.contrib.layers`."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy import layers as tf_layers
from sojourn.compat.legacy.contrib.building import (
    CHANNELS_FIRST,
    collect,
    collections_of,
    finish_as,
    run_layer,
    settings,
    xavier_initializer,
    zeros_if_default,
)
from sojourn.compat.legacy.contrib.framework import add_arg_scope, model_variable

_core = tf_layers.namespace()


def _convolution(kind: str, default: str) -> Any:
    def call(
        inputs: Any,
        num_outputs: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: str = "SAME",
        data_format: str | None = None,
        rate: Any = 1,
        *places: Any,
        **named: Any,
    ) -> Any:
        holes = {} if kind.endswith("Transpose") else {"dilation_rate": rate}
        return run_layer(
            getattr(_core, kind),
            default,
            inputs,
            [int(num_outputs), kernel_size, stride, padding.lower(), _order(data_format)],
            settings(*places, **named),
            **holes,
        )

    call.__name__ = call.__qualname__ = default.lower() + kind
    call.__doc__ = f"A {kind} layer, then normalizer and activation."
    return add_arg_scope(call)


conv1d = convolution1d = _convolution("Conv1D", "Conv")
conv2d = convolution2d = convolution = _convolution("Conv2D", "Conv")
conv3d = convolution3d = _convolution("Conv3D", "Conv")


def _transposed(made: Any, name: str) -> Any:
    def call(
        inputs: Any,
        num_outputs: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: str = "SAME",
        data_format: str | None = None,
        *places: Any,
        **named: Any,
    ) -> Any:
        some = (inputs, num_outputs, kernel_size, stride, padding, data_format)
        return made(*some, 1, *places, **named)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = "A transposed convolution; it has no `rate` among its arguments."
    return add_arg_scope(call)


conv2d_transpose = convolution2d_transpose = _transposed(
    _convolution("Conv2DTranspose", "Conv2d_transpose"), "conv2d_transpose"
)
conv3d_transpose = convolution3d_transpose = _transposed(
    _convolution("Conv3DTranspose", "Conv3d_transpose"), "conv3d_transpose"
)


@add_arg_scope
def separable_conv2d(
    inputs: Any,
    num_outputs: int | None,
    kernel_size: Any,
    depth_multiplier: int = 1,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str | None = "NHWC",
    rate: Any = 1,
    *places: Any,
    pointwise_initializer: Any = None,
    **named: Any,
) -> Any:
    """Apply a depthwise convolution, then a pointwise one unless `num_outputs` is None."""
    of = settings(*places, **named)
    initializer = of.weights_initializer or xavier_initializer()
    with tf.variable_scope(of.scope, "SeparableConv2d", [inputs], reuse=of.reuse):
        inputs = tf.convert_to_tensor(inputs)
        size = [kernel_size] * 2 if isinstance(kernel_size, int) else list(kernel_size)
        step = [stride] * 2 if isinstance(stride, int) else list(stride)
        width = tf.dimension_value(inputs.shape[-1])

        def make(name: str, shape: Any, start: Any, penalty: Any) -> Any:
            return model_variable(
                name,
                shape,
                initializer=start,
                regularizer=penalty,
                trainable=of.trainable,
                collections=collections_of(of.variables_collections, name),
            )

        shape = [*size, width, depth_multiplier]
        depthwise = make("depthwise_weights", shape, initializer, of.weights_regularizer)
        outputs = tf.nn.depthwise_conv2d(
            inputs, depthwise, [1, *step, 1], padding, [rate] * 2 if isinstance(rate, int) else rate
        )
        if num_outputs is not None:
            shape = [1, 1, width * depth_multiplier, num_outputs]
            start = pointwise_initializer or initializer
            pointwise = make("pointwise_weights", shape, start, of.weights_regularizer)
            outputs = tf.nn.conv2d(outputs, pointwise, [1, 1, 1, 1], "VALID")
        if of.normalizer_fn is None and of.biases_initializer is not None:
            start = zeros_if_default(of.biases_initializer)
            outputs += make("biases", [outputs.shape[-1]], start, of.biases_regularizer)
        return finish_as(outputs, of)


separable_convolution2d = separable_conv2d


def _pooling(function: Any, default_name: str) -> Any:
    def call(
        inputs: Any,
        kernel_size: Any,
        stride: Any = 2,
        padding: str = "VALID",
        data_format: str = "",
        outputs_collections: Any = None,
        scope: Any = None,
    ) -> Any:
        order = _order(data_format)
        pooled = function(inputs, kernel_size, stride, padding.lower(), order, scope)
        return collect(pooled, outputs_collections, pooled.op.name.rpartition("/")[0])

    call.__name__ = call.__qualname__ = default_name
    call.__doc__ = "One number for each window."
    return add_arg_scope(call)


max_pool2d = _pooling(_core.max_pooling2d, "max_pool2d")
avg_pool2d = _pooling(_core.average_pooling2d, "avg_pool2d")
max_pool3d = _pooling(_core.max_pooling3d, "max_pool3d")
avg_pool3d = _pooling(_core.average_pooling3d, "avg_pool3d")


def _order(data_format: str | None) -> str:
    return "channels_first" if data_format in CHANNELS_FIRST else "channels_last"
