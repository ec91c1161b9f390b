"""`tf.contrib.slim`: the layers, argument scopes, losses and a plain training loop."""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.training import checkpoint_utils

from sojourn.compat.legacy import removed
from sojourn.compat.legacy.contrib import framework, slim_data, slim_learning
from sojourn.compat.legacy.contrib import layer_utils as utils  # noqa: F401
from sojourn.compat.legacy.contrib import layers as _layers
from sojourn.compat.legacy.contrib.layers import *  # noqa: F403
from sojourn.compat.legacy.contrib.slim_data import (  # noqa: F401
    data_provider,
    dataset,
    dataset_data_provider,
    parallel_reader,
    queues,
    tfexample_decoder,
)
from sojourn.compat.legacy.contrib.slim_nets import (  # noqa: F401
    nets,
    resnet_utils,
    resnet_v1,
    resnet_v2,
    vgg,
)
from sojourn.compat.legacy.contrib.streaming import (
    STREAMING,
    aggregate_metric_map,
    aggregate_metrics,
)
from sojourn.compat.legacy.namespaces import Namespace, adopt, names_of


def _logits_first(function: Any) -> Any:
    # Contrib's losses take (predictions or logits, labels); those of tf.losses the reverse.
    first = list(inspect.signature(function).parameters)[1]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 1:
            return function(**{first: args[0]}, **kwargs)
        return function(*args[1::-1], *args[2:], **kwargs)

    return call


def _hinge_loss(logits: Any, labels: Any = None, scope: Any = None) -> Any:
    """Return the loss of each value, without adding it to the loss collection."""
    none = tf.losses.Reduction.NONE
    return tf.losses.hinge_loss(labels, logits, 1.0, scope, loss_collection=None, reduction=none)


losses = Namespace(
    "tensorflow.contrib.losses",
    (tf.losses,),
    {"hinge_loss": _hinge_loss}
    | {
        name: _logits_first(function)
        for name, function in names_of(
            tf.losses,
            "absolute_difference cosine_distance log_loss mean_pairwise_squared_error "
            "mean_squared_error sigmoid_cross_entropy softmax_cross_entropy "
            "sparse_softmax_cross_entropy",
        ).items()
    },
)


def analyze_vars(variables: Any, print_info: bool = False) -> tuple[int, int]:
    """Return the total number of elements and of bytes of the variables."""
    total = size = 0
    for var in variables:
        count = var.shape.num_elements() or 0
        total += count
        size += count * var.dtype.base_dtype.size
        if print_info:
            # The program requested a listing on stdout.
            print(f"{var.name}: {var.shape.as_list()}, {count} elements")
    return total, size


learning = types.SimpleNamespace(
    **names_of(
        slim_learning,
        "add_gradients_summaries clip_gradient_norms create_train_op multiply_gradients train "
        "train_step",
    )
)
evaluation = types.SimpleNamespace(
    **names_of(slim_learning, "evaluate_once evaluation_loop"),
    **names_of(checkpoint_utils, "checkpoints_iterator wait_for_new_checkpoint"),
)
ops = layers = _layers
metrics = Namespace(
    "tensorflow.contrib.slim.metrics",
    (tf.metrics,),
    {
        **STREAMING,
        "aggregate_metrics": aggregate_metrics,
        "aggregate_metric_map": aggregate_metric_map,
    },
)
model_analyzer = types.SimpleNamespace(analyze_vars=analyze_vars)
prefetch_queue = types.SimpleNamespace(prefetch_queue=slim_data.prefetch_queue)

_STEPS = "create_global_step get_global_step get_or_create_global_step"
globals().update(names_of(tf.train, _STEPS))

adopt(globals(), framework)
__getattr__ = removed.missing_name("tf.contrib.slim")
