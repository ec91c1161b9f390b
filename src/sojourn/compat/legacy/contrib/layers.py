"""`tf.contrib.layers`: all its public names, with arg scopes.

Convolutions, normalizers and regularizers are in their own modules.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy import layers as tf_layers
from sojourn.compat.legacy import removed
from sojourn.compat.legacy.contrib import convolutions, normalizers
from sojourn.compat.legacy.contrib import layer_utils as utils  # noqa: F401
from sojourn.compat.legacy.contrib import regularizers as _regularizers
from sojourn.compat.legacy.contrib import summaries as _summaries
from sojourn.compat.legacy.contrib.building import (  # noqa: F401
    collect,
    run_layer,
    settings,
    variance_scaling_initializer,
    xavier_initializer,
    xavier_initializer_conv2d,
)
from sojourn.compat.legacy.contrib.feature_columns import *  # noqa: F403
from sojourn.compat.legacy.contrib.framework import add_arg_scope
from sojourn.compat.legacy.contrib.summaries import OPTIMIZER_SUMMARIES  # noqa: F401
from sojourn.compat.legacy.namespaces import adopt

_core = tf_layers.namespace()


@add_arg_scope
def fully_connected(inputs: Any, num_outputs: int, *places: Any, **named: Any) -> Any:
    """Return ``activation(inputs @ weights + biases)``."""
    sizes, of = [int(num_outputs)], settings(*places, **named)
    return run_layer(_core.Dense, "fully_connected", inputs, sizes, of)


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
    """Apply dropout while training: keep each value with probability `keep_prob`."""
    with tf.variable_scope(scope, "Dropout", [inputs]):
        layer = _core.Dropout(rate=1 - keep_prob, noise_shape=noise_shape, seed=seed)
        outputs = layer(tf.convert_to_tensor(inputs), training=is_training)
        return collect(outputs, outputs_collections)


@add_arg_scope
def flatten(inputs: Any, outputs_collections: Any = None, scope: Any = None) -> Any:
    """Flatten each example into one row."""
    with tf.name_scope(scope or "Flatten") as here:
        flat = _core.flatten(tf.convert_to_tensor(inputs))
        return collect(flat, outputs_collections, here.rstrip("/"))


@add_arg_scope
def bias_add(inputs: Any, activation_fn: Any = None, initializer: Any = None, **rest: Any) -> Any:
    """Add a trainable bias to each channel."""
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
    """Encode class indices as one-hot vectors."""
    with tf.name_scope(scope or "OneHotEncoding") as here:
        encoded = tf.one_hot(labels, num_classes, on_value=on_value, off_value=off_value)
        return collect(encoded, outputs_collections, here.rstrip("/"))


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
    """Return the embedding of each id."""
    with tf.variable_scope(scope, "EmbedSequence", [ids], reuse=reuse):
        table = tf.get_variable(
            "embeddings",
            [vocab_size, embed_dim],
            initializer=initializer,
            regularizer=regularizer,
            trainable=trainable,
        )
        return tf.nn.embedding_lookup(table, ids)


def bow_encoder(
    ids: Any,
    vocab_size: int,
    embed_dim: int,
    sparse_lookup: bool = True,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    scope: Any = None,
    reuse: Any = None,
) -> Any:
    """Return the mean of the word embeddings of each row (bag of words)."""
    table = (vocab_size, embed_dim, False, initializer, regularizer, trainable)
    with tf.variable_scope(scope, "bow_encoder", [ids], reuse=reuse) as here:
        return tf.reduce_mean(embed_sequence(ids, *table, here, reuse), 1)


safe_embedding_lookup_sparse = tf.nn.safe_embedding_lookup_sparse


def maxout(inputs: Any, num_units: int, axis: int = -1, scope: Any = None) -> Any:
    """Return the maximum of each of `num_units` groups of values along `axis`."""
    with tf.name_scope(scope or "MaxOut"):
        inputs = tf.convert_to_tensor(inputs)
        shape = [-1 if size is None else size for size in inputs.shape.as_list()]
        width = shape[axis]
        if width % num_units:
            raise ValueError(f"{width} numbers cannot be put into {num_units} equal groups")
        axis = axis % len(shape)
        grouped = [*shape[:axis], num_units, width // num_units, *shape[axis + 1 :]]
        return tf.reduce_max(tf.reshape(inputs, grouped), axis + 1)


def unit_norm(inputs: Any, dim: int, epsilon: float = 1e-7, scope: Any = None) -> Any:
    """Return `inputs` divided by their norm along `dim`."""
    with tf.name_scope(scope or "UnitNorm"):
        length = tf.sqrt(tf.reduce_sum(tf.square(inputs), dim, keepdims=True) + epsilon)
        return inputs / length


def scale_gradient(inputs: Any, gradient_multiplier: Any) -> Any:
    """Return `inputs`, but multiply its gradient by `gradient_multiplier`."""
    return gradient_multiplier * inputs + tf.stop_gradient((1 - gradient_multiplier) * inputs)


def softmax(logits: Any, scope: Any = None) -> Any:
    """Return probabilities over the last axis."""
    with tf.name_scope(scope or "softmax"):
        return tf.nn.softmax(logits)


def repeat(inputs: Any, repetitions: int, layer: Any, *args: Any, **kwargs: Any) -> Any:
    """Apply `layer` `repetitions` times, each in its own scope."""
    scope = kwargs.pop("scope", None)
    with tf.variable_scope(scope, "Repeat", [inputs]):
        name = scope or getattr(layer, "__name__", "layer")
        for index in range(repetitions):
            inputs = layer(inputs, *args, scope=f"{name}_{index + 1}", **kwargs)
    return inputs


def stack(inputs: Any, layer: Any, stack_args: Sequence[Any], **kwargs: Any) -> Any:
    """Apply `layer` once for each entry of `stack_args`."""
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
    """Return one op that updates the variables and returns the loss."""
    step = tf.train.get_or_create_global_step() if global_step is None else global_step
    rate = learning_rate_decay_fn(learning_rate, step) if learning_rate_decay_fn else learning_rate
    opt = _optimizer(optimizer, rate)
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS) if update_ops is None else update_ops
    with tf.variable_scope(name, "OptimizeLoss", [loss]), tf.control_dependencies(updates):
        pairs = opt.compute_gradients(loss, variables or tf.trainable_variables())
        if gradient_noise_scale is not None:
            pairs = [(_with_noise(moves, gradient_noise_scale), v) for moves, v in pairs]
        if gradient_multipliers is not None:
            pairs = [(_multiplied(moves, v, gradient_multipliers), v) for moves, v in pairs]
        if callable(clip_gradients):
            pairs = clip_gradients(pairs)
        elif clip_gradients is not None:
            gradients, moved = zip(*pairs, strict=True)
            gradients, _ = tf.clip_by_global_norm(gradients, clip_gradients)
            pairs = list(zip(gradients, moved, strict=True))
        with tf.control_dependencies([opt.apply_gradients(pairs, global_step=step)]):
            return tf.identity(loss)


def _with_noise(gradient: Any, scale: Any) -> Any:
    if gradient is None:
        return None
    dense = tf.convert_to_tensor(gradient)
    return dense + tf.truncated_normal(tf.shape(dense), dtype=dense.dtype) * scale


def _multiplied(gradient: Any, variable: Any, multipliers: Any) -> Any:
    """Multiply the gradient by the factor given for its variable or for the variable's name."""
    by_name = {
        key if isinstance(key, str) else key.op.name: factor for key, factor in multipliers.items()
    }
    factor = by_name.get(variable.op.name)
    if gradient is None or factor is None:
        return gradient
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * factor, gradient.indices, gradient.dense_shape)
    return gradient * tf.cast(factor, gradient.dtype)


OPTIMIZER_CLS_NAMES = {
    "Adagrad": tf.train.AdagradOptimizer,
    "Adam": tf.train.AdamOptimizer,
    "Ftrl": tf.train.FtrlOptimizer,
    "Momentum": lambda learning_rate: tf.train.MomentumOptimizer(learning_rate, momentum=0.9),
    "RMSProp": tf.train.RMSPropOptimizer,
    "SGD": tf.train.GradientDescentOptimizer,
}


def _optimizer(wanted: Any, rate: Any) -> Any:
    """Return the optimizer: given itself, by name, or by a class or function that makes it. The
    class or function receives the learning rate unless the rate is None."""
    if isinstance(wanted, tf.train.Optimizer):
        return wanted
    make = OPTIMIZER_CLS_NAMES[wanted] if isinstance(wanted, str) else wanted
    return make() if rate is None else make(rate)


# Programs access these names as the inner modules of contrib.
initializers = regularizers = optimizers = summaries = sys.modules[__name__]

relu = functools.partial(fully_connected, activation_fn=tf.nn.relu)
relu6 = functools.partial(fully_connected, activation_fn=tf.nn.relu6)
linear = functools.partial(fully_connected, activation_fn=None)
elu = functools.partial(fully_connected, activation_fn=tf.nn.elu)

adopt(globals(), convolutions, normalizers, _regularizers, _summaries)
__getattr__ = removed.missing_name("tf.contrib.layers")
