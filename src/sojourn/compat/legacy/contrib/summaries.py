"""Summary functions of `tf.contrib.layers` for tensors, collections and activations."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

OPTIMIZER_SUMMARIES = ["learning_rate", "loss", "gradients", "gradient_norm"]


def summarize_tensor(tensor: Any, tag: Any = None) -> Any:
    """Add a scalar summary for a scalar, a histogram for any other tensor."""
    name = f"{tag or tensor.op.name}_summary"
    if tensor.shape.ndims == 0:
        return tf.summary.scalar(name, tensor)
    return tf.summary.histogram(name, tensor)


def summarize_activation(op: Any) -> Any:
    """Add a histogram of a layer's output; for rectifiers also the fractions at 0 and, for Relu6,
    at 6."""
    if op.op.type in ("Relu", "Softplus", "Relu6"):
        tf.summary.scalar(f"{op.op.name}/zeros", tf.reduce_mean(tf.cast(op <= 0, tf.float32)))
    if op.op.type == "Relu6":
        tf.summary.scalar(f"{op.op.name}/sixes", tf.reduce_mean(tf.cast(op >= 6, tf.float32)))
    return tf.summary.histogram(f"{op.op.name}/activation", op)


def summarize_tensors(tensors: Any, summarizer: Any = summarize_tensor) -> list[Any]:
    """Add a summary of each tensor."""
    return [summarizer(tensor) for tensor in tensors]


def summarize_collection(
    collection: str, name_filter: Any = None, summarizer: Any = summarize_tensor
) -> list[Any]:
    """Add a summary of each tensor of a collection."""
    return summarize_tensors(tf.get_collection(collection, scope=name_filter), summarizer)


def summarize_variables(name_filter: Any = None, summarizer: Any = summarize_tensor) -> list[Any]:
    """Add a summary of each global variable."""
    return summarize_collection(tf.GraphKeys.GLOBAL_VARIABLES, name_filter, summarizer)


def summarize_activations(
    name_filter: Any = None, summarizer: Any = summarize_activation
) -> list[Any]:
    """Add a summary of each tensor in the activations collection."""
    return summarize_collection(tf.GraphKeys.ACTIVATIONS, name_filter, summarizer)
