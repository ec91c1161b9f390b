"""Summaries that `tf.contrib.layers` makes of tensors, collections and activations."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

OPTIMIZER_SUMMARIES = ["learning_rate", "loss", "gradients", "gradient_norm"]


def summarize_tensor(tensor: Any, tag: Any = None) -> Any:
    """A number as a scalar, anything else as a histogram."""
    name = f"{tag or tensor.op.name}_summary"
    if tensor.shape.ndims == 0:
        return tf.summary.scalar(name, tensor)
    return tf.summary.histogram(name, tensor)


def summarize_activation(op: Any) -> Any:
    """The values of a layer; of a rectifier or a sigmoid also how many are at their end."""
    if op.op.type in ("Relu", "Softplus", "Relu6"):
        tf.summary.scalar(f"{op.op.name}/zeros", tf.reduce_mean(tf.cast(op <= 0, tf.float32)))
    if op.op.type == "Relu6":
        tf.summary.scalar(f"{op.op.name}/sixes", tf.reduce_mean(tf.cast(op >= 6, tf.float32)))
    return tf.summary.histogram(f"{op.op.name}/activation", op)


def summarize_tensors(tensors: Any, summarizer: Any = summarize_tensor) -> list[Any]:
    """A summary of each."""
    return [summarizer(tensor) for tensor in tensors]


def summarize_collection(
    collection: str, name_filter: Any = None, summarizer: Any = summarize_tensor
) -> list[Any]:
    """A summary of each tensor of a collection."""
    return summarize_tensors(tf.get_collection(collection, scope=name_filter), summarizer)


def summarize_variables(name_filter: Any = None, summarizer: Any = summarize_tensor) -> list[Any]:
    """A summary of each variable."""
    return summarize_collection(tf.GraphKeys.GLOBAL_VARIABLES, name_filter, summarizer)


def summarize_activations(
    name_filter: Any = None, summarizer: Any = summarize_activation
) -> list[Any]:
    """A summary of each tensor that a layer put among the activations."""
    return summarize_collection(tf.GraphKeys.ACTIVATIONS, name_filter, summarizer)
