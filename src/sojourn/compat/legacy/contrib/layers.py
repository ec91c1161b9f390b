"""`tf.contrib.layers`: fully connected, convolution, pooling and normalization, with arg scopes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy import layers as tf_layers
from sojourn.compat.legacy import removed
from sojourn.compat.legacy.contrib.framework import add_arg_scope
from sojourn.compat.legacy.contrib.regularizers import (  # noqa: F401
    apply_regularization,
    l1_l2_regularizer,
    l1_regularizer,
    l2_regularizer,
    sum_regularizer,
)

_core = tf_layers.namespace()
_FIRST = ("NCHW", "NCW", "NCDHW")


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


def _collect(outputs: Any, collections: Any, alias: str) -> Any:
    names = collections if isinstance(collections, (list, tuple)) else [collections]
    for name in names:
        if name:
            tf.add_to_collection(name, outputs)
    return outputs


def _finish(
    outputs: Any, normalizer: Any, normalizer_params: Any, activation: Any, collections: Any
) -> Any:
    if normalizer is not None:
        outputs = normalizer(outputs, **(normalizer_params or {}))
    if activation is not None:
        outputs = activation(outputs)
    return _collect(outputs, collections, "")


def _remember(layer: Any, variables_collections: Any) -> None:
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


def _scoped(scope: Any, default: str, inputs: Any, reuse: Any) -> Any:
    return tf.variable_scope(scope, default, [inputs], reuse=reuse, custom_getter=_named)


@add_arg_scope
def fully_connected(
    inputs: Any,
    num_outputs: int,
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
    """``activation(inputs @ weights + biases)``."""
    with _scoped(scope, "fully_connected", inputs, reuse) as here:
        layer = _core.Dense(
            int(num_outputs),
            use_bias=normalizer_fn is None and biases_initializer is not None,
            kernel_initializer=weights_initializer or xavier_initializer(),
            bias_initializer=_zeros_if_default(biases_initializer),
            kernel_regularizer=weights_regularizer,
            bias_regularizer=biases_regularizer,
            trainable=trainable,
            name=here.name,
            _scope=here,
            _reuse=reuse,
        )
        outputs = layer(tf.convert_to_tensor(inputs))
        _remember(layer, variables_collections)
        return _finish(
            outputs, normalizer_fn, normalizer_params, activation_fn, outputs_collections
        )


def _zeros_if_default(initializer: Any) -> Any:
    return tf.zeros_initializer() if initializer in ("zeros", None) else initializer


def _convolution(kind: str, default: str) -> Any:
    def call(
        inputs: Any,
        num_outputs: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: str = "SAME",
        data_format: str | None = None,
        rate: Any = 1,
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
        settings = {} if kind.endswith("Transpose") else {"dilation_rate": rate}
        with _scoped(scope, default, inputs, reuse) as here:
            layer = getattr(_core, kind)(
                int(num_outputs),
                kernel_size,
                strides=stride,
                padding=padding.lower(),
                data_format="channels_first" if data_format in _FIRST else "channels_last",
                use_bias=normalizer_fn is None and biases_initializer is not None,
                kernel_initializer=weights_initializer or xavier_initializer(),
                bias_initializer=_zeros_if_default(biases_initializer),
                kernel_regularizer=weights_regularizer,
                bias_regularizer=biases_regularizer,
                trainable=trainable,
                name=here.name,
                _scope=here,
                _reuse=reuse,
                **settings,
            )
            outputs = layer(tf.convert_to_tensor(inputs))
            _remember(layer, variables_collections)
            return _finish(
                outputs, normalizer_fn, normalizer_params, activation_fn, outputs_collections
            )

    call.__name__ = call.__qualname__ = default.lower() + kind
    call.__doc__ = f"A {kind} layer, then normalizer and activation."
    return add_arg_scope(call)


conv1d = convolution1d = _convolution("Conv1D", "Conv")
conv2d = convolution2d = convolution = _convolution("Conv2D", "Conv")
conv3d = convolution3d = _convolution("Conv3D", "Conv")
_transpose2d = _convolution("Conv2DTranspose", "Conv2d_transpose")


@add_arg_scope
def conv2d_transpose(
    inputs: Any,
    num_outputs: int,
    kernel_size: Any,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str | None = "NHWC",
    activation_fn: Any = tf.nn.relu,
    **kwargs: Any,
) -> Any:
    """A transposed convolution; it has no `rate` among its arguments."""
    return _transpose2d(
        inputs, num_outputs, kernel_size, stride, padding, data_format, 1, activation_fn, **kwargs
    )


convolution2d_transpose = conv2d_transpose


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
    activation_fn: Any = tf.nn.relu,
    normalizer_fn: Any = None,
    normalizer_params: Any = None,
    weights_initializer: Any = None,
    weights_regularizer: Any = None,
    biases_initializer: Any = "zeros",
    reuse: Any = None,
    trainable: bool = True,
    scope: Any = None,
    outputs_collections: Any = None,
) -> Any:
    """A depthwise convolution, and a pointwise one unless `num_outputs` is None."""
    initializer = weights_initializer or xavier_initializer()
    with tf.variable_scope(scope, "SeparableConv2d", [inputs], reuse=reuse):
        inputs = tf.convert_to_tensor(inputs)
        size = [kernel_size] * 2 if isinstance(kernel_size, int) else list(kernel_size)
        step = [stride] * 2 if isinstance(stride, int) else list(stride)
        width = tf.dimension_value(inputs.shape[-1])
        depthwise = tf.get_variable(
            "depthwise_weights",
            [*size, width, depth_multiplier],
            initializer=initializer,
            regularizer=weights_regularizer,
            trainable=trainable,
        )
        outputs = tf.nn.depthwise_conv2d(
            inputs, depthwise, [1, *step, 1], padding, [rate] * 2 if isinstance(rate, int) else rate
        )
        if num_outputs is not None:
            pointwise = tf.get_variable(
                "pointwise_weights",
                [1, 1, width * depth_multiplier, num_outputs],
                initializer=initializer,
                regularizer=weights_regularizer,
                trainable=trainable,
            )
            outputs = tf.nn.conv2d(outputs, pointwise, [1, 1, 1, 1], "VALID")
        if normalizer_fn is None and biases_initializer is not None:
            start = _zeros_if_default(biases_initializer)
            outputs += tf.get_variable("biases", [outputs.shape[-1]], initializer=start)
        return _finish(
            outputs, normalizer_fn, normalizer_params, activation_fn, outputs_collections
        )


separable_convolution2d = separable_conv2d


@add_arg_scope
def max_pool2d(
    inputs: Any,
    kernel_size: Any,
    stride: Any = 2,
    padding: str = "VALID",
    data_format: str = "NHWC",
    outputs_collections: Any = None,
    scope: Any = None,
) -> Any:
    """The largest value of each window."""
    pooled = _core.max_pooling2d(
        inputs, kernel_size, stride, padding.lower(), _order(data_format), scope
    )
    return _collect(pooled, outputs_collections, "")


@add_arg_scope
def avg_pool2d(
    inputs: Any,
    kernel_size: Any,
    stride: Any = 2,
    padding: str = "VALID",
    data_format: str = "NHWC",
    outputs_collections: Any = None,
    scope: Any = None,
) -> Any:
    """The mean of each window."""
    pooled = _core.average_pooling2d(
        inputs, kernel_size, stride, padding.lower(), _order(data_format), scope
    )
    return _collect(pooled, outputs_collections, "")


def _order(data_format: str) -> str:
    return "channels_first" if data_format in _FIRST else "channels_last"


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
            axis=1 if data_format in _FIRST else -1,
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
        _remember(layer, variables_collections)
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
        return _finish(outputs, None, None, activation_fn, outputs_collections)


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
        return _finish(outputs, None, None, activation_fn, outputs_collections)


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
    if data_format in _FIRST:
        raise NotImplementedError("instance_norm is provided with the channels last")
    with tf.variable_scope(scope, "InstanceNorm", [inputs], reuse=reuse):
        inputs = tf.convert_to_tensor(inputs)
        axes = list(range(1, inputs.shape.ndims - 1))
        mean, variance = tf.nn.moments(inputs, axes, keep_dims=True)
        make = functools.partial(tf.get_variable, shape=inputs.shape[-1:], trainable=trainable)
        beta = make("beta", initializer=tf.zeros_initializer()) if center else None
        gamma = make("gamma", initializer=tf.ones_initializer()) if scale else None
        outputs = tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)
        return _finish(outputs, None, None, activation_fn, None)


@add_arg_scope
def dropout(
    inputs: Any,
    keep_prob: Any = 0.5,
    noise_shape: Any = None,
    is_training: Any = True,
    outputs_collections: Any = None,
    scope: Any = None,
    seed: Any = None,
) -> Any:
    """Drop all but `keep_prob` of the values while training."""
    with tf.variable_scope(scope, "Dropout", [inputs]):
        layer = _core.Dropout(rate=1 - keep_prob, noise_shape=noise_shape, seed=seed)
        outputs = layer(tf.convert_to_tensor(inputs), training=is_training)
        return _collect(outputs, outputs_collections, "")


@add_arg_scope
def flatten(inputs: Any, outputs_collections: Any = None, scope: Any = None) -> Any:
    """One row an example."""
    with tf.name_scope(scope or "Flatten"):
        return _collect(_core.flatten(tf.convert_to_tensor(inputs)), outputs_collections, "")


@add_arg_scope
def bias_add(inputs: Any, activation_fn: Any = None, initializer: Any = None, **rest: Any) -> Any:
    """Add one trainable number a channel."""
    with tf.variable_scope(rest.get("scope"), "BiasAdd", [inputs], reuse=rest.get("reuse")):
        start = initializer or tf.zeros_initializer()
        outputs = inputs + tf.get_variable("biases", inputs.shape[-1:], initializer=start)
        return activation_fn(outputs) if activation_fn else outputs


@add_arg_scope
def one_hot_encoding(
    labels: Any,
    num_classes: int,
    on_value: float = 1.0,
    off_value: float = 0.0,
    outputs_collections: Any = None,
    scope: Any = None,
) -> Any:
    """One column a class."""
    with tf.name_scope(scope or "OneHotEncoding"):
        encoded = tf.one_hot(labels, num_classes, on_value=on_value, off_value=off_value)
        return _collect(encoded, outputs_collections, "")


def embed_sequence(
    ids: Any,
    vocab_size: int | None = None,
    embed_dim: int | None = None,
    unique: bool = False,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    scope: Any = None,
    reuse: Any = None,
) -> Any:
    """Look the embedding of each id up."""
    with tf.variable_scope(scope, "EmbedSequence", [ids], reuse=reuse):
        table = tf.get_variable(
            "embeddings",
            [vocab_size, embed_dim],
            initializer=initializer,
            regularizer=regularizer,
            trainable=trainable,
        )
        return tf.nn.embedding_lookup(table, ids)


def softmax(logits: Any, scope: Any = None) -> Any:
    """Probabilities over the last axis."""
    with tf.name_scope(scope or "softmax"):
        return tf.nn.softmax(logits)


def repeat(inputs: Any, repetitions: int, layer: Any, *args: Any, **kwargs: Any) -> Any:
    """Apply `layer` so many times, each in a scope of its own."""
    scope = kwargs.pop("scope", None)
    with tf.variable_scope(scope, "Repeat", [inputs]):
        name = scope or getattr(layer, "__name__", "layer")
        for index in range(repetitions):
            inputs = layer(inputs, *args, scope=f"{name}_{index + 1}", **kwargs)
    return inputs


def stack(inputs: Any, layer: Any, stack_args: Sequence[Any], **kwargs: Any) -> Any:
    """Apply `layer` once for each of `stack_args`."""
    scope = kwargs.pop("scope", None)
    with tf.variable_scope(scope, "Stack", [inputs]):
        name = scope or getattr(layer, "__name__", "layer")
        for index, args in enumerate(stack_args):
            args = args if isinstance(args, (list, tuple)) else [args]
            inputs = layer(inputs, *args, scope=f"{name}_{index + 1}", **kwargs)
    return inputs


def optimize_loss(
    loss: Any,
    global_step: Any,
    learning_rate: Any,
    optimizer: Any,
    gradient_noise_scale: Any = None,
    gradient_multipliers: Any = None,
    clip_gradients: Any = None,
    learning_rate_decay_fn: Any = None,
    update_ops: Any = None,
    variables: Any = None,
    name: Any = None,
    summaries: Any = None,
    **rest: Any,
) -> Any:
    """One op that moves the variables, and gives the loss."""
    if gradient_noise_scale is not None or gradient_multipliers is not None:
        raise NotImplementedError("optimize_loss with gradient noise or multipliers")
    step = tf.train.get_or_create_global_step() if global_step is None else global_step
    rate = learning_rate_decay_fn(learning_rate, step) if learning_rate_decay_fn else learning_rate
    opt = _optimizer(optimizer, rate)
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS) if update_ops is None else update_ops
    with tf.variable_scope(name, "OptimizeLoss", [loss]), tf.control_dependencies(updates):
        pairs = opt.compute_gradients(loss, variables or tf.trainable_variables())
        if callable(clip_gradients):
            pairs = clip_gradients(pairs)
        elif clip_gradients is not None:
            gradients, moved = zip(*pairs, strict=True)
            gradients, _ = tf.clip_by_global_norm(gradients, clip_gradients)
            pairs = list(zip(gradients, moved, strict=True))
        with tf.control_dependencies([opt.apply_gradients(pairs, global_step=step)]):
            return tf.identity(loss)


def _optimizer(wanted: Any, rate: Any) -> Any:
    known = {
        "Adagrad": tf.train.AdagradOptimizer,
        "Adam": tf.train.AdamOptimizer,
        "Ftrl": tf.train.FtrlOptimizer,
        "Momentum": lambda learning_rate: tf.train.MomentumOptimizer(learning_rate, momentum=0.9),
        "RMSProp": tf.train.RMSPropOptimizer,
        "SGD": tf.train.GradientDescentOptimizer,
    }
    if isinstance(wanted, str):
        wanted = known[wanted]
    return wanted if isinstance(wanted, tf.train.Optimizer) else wanted(learning_rate=rate)


relu = functools.partial(fully_connected, activation_fn=tf.nn.relu)
relu6 = functools.partial(fully_connected, activation_fn=tf.nn.relu6)
linear = functools.partial(fully_connected, activation_fn=None)
OPTIMIZER_CLS_NAMES = {
    "Adagrad": tf.train.AdagradOptimizer,
    "Adam": tf.train.AdamOptimizer,
    "Ftrl": tf.train.FtrlOptimizer,
    "RMSProp": tf.train.RMSPropOptimizer,
    "SGD": tf.train.GradientDescentOptimizer,
}

__all__ = [name for name in dir() if not name.startswith("_")]
__getattr__ = removed.missing_name("tf.contrib.layers")
