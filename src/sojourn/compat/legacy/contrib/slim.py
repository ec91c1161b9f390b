"""`tf.contrib.slim`: the layers, argument scopes, losses and a plain training loop."""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy import removed
from sojourn.compat.legacy.contrib import layers as _layers
from sojourn.compat.legacy.contrib.framework import (
    add_arg_scope,
    arg_scope,
    assign_from_checkpoint_fn,
    current_arg_scope,
    get_local_variables,
    get_model_variables,
    get_or_create_global_step,
    get_trainable_variables,
    get_unique_variable,
    get_variables,
    get_variables_by_name,
    get_variables_by_suffix,
    get_variables_to_restore,
    has_arg_scope,
    local_variable,
    model_variable,
    variable,
)
from sojourn.compat.legacy.contrib.layers import *  # noqa: F403
from sojourn.compat.legacy.contrib.streaming import STREAMING
from sojourn.compat.legacy.namespaces import Namespace


def _logits_first(function: Any) -> Any:
    # The losses of contrib took (predictions or logits, labels); those of tf.losses the reverse.
    first = list(inspect.signature(function).parameters)[1]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 1:
            return function(**{first: args[0]}, **kwargs)
        return function(*args[1::-1], *args[2:], **kwargs)

    return call


def _hinge_loss(logits: Any, labels: Any = None, scope: Any = None) -> Any:
    """The loss of each value, which counts in no total."""
    none = tf.losses.Reduction.NONE
    return tf.losses.hinge_loss(labels, logits, 1.0, scope, loss_collection=None, reduction=none)


losses = Namespace(
    "tensorflow.contrib.losses",
    (tf.losses,),
    {"hinge_loss": _hinge_loss}
    | {
        name: _logits_first(getattr(tf.losses, name))
        for name in (
            "softmax_cross_entropy",
            "sparse_softmax_cross_entropy",
            "sigmoid_cross_entropy",
            "mean_squared_error",
            "absolute_difference",
            "log_loss",
            "mean_pairwise_squared_error",
            "cosine_distance",
        )
    },
)


def create_train_op(
    total_loss: Any,
    optimizer: Any,
    global_step: Any = None,
    update_ops: Any = None,
    variables_to_train: Any = None,
    clip_gradient_norm: float = 0,
    summarize_gradients: bool = False,
    **rest: Any,
) -> Any:
    """One op that moves the variables, counts the step and gives the loss."""
    step = tf.train.get_or_create_global_step() if global_step is None else global_step
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS) if update_ops is None else update_ops
    with tf.control_dependencies(list(updates)):
        total_loss = tf.identity(total_loss)
    pairs = optimizer.compute_gradients(total_loss, variables_to_train or tf.trainable_variables())
    if clip_gradient_norm > 0:
        pairs = [(tf.clip_by_norm(g, clip_gradient_norm), v) for g, v in pairs if g is not None]
    with tf.control_dependencies([optimizer.apply_gradients(pairs, global_step=step)]):
        return tf.identity(total_loss, name="train_op")


def train(
    train_op: Any,
    logdir: str | None,
    number_of_steps: int | None = None,
    log_every_n_steps: int = 1,
    init_fn: Any = None,
    save_summaries_secs: int = 600,
    save_interval_secs: int = 600,
    session_config: Any = None,
    master: str = "",
    **rest: Any,
) -> Any:
    """Run `train_op` until `number_of_steps`, with checkpoints and summaries in `logdir`."""
    scaffold = tf.train.Scaffold(init_fn=(lambda _, session: init_fn(session)) if init_fn else None)
    hooks = [tf.train.StopAtStepHook(last_step=number_of_steps)] if number_of_steps else []
    loss = None
    with tf.train.MonitoredTrainingSession(
        master=master,
        checkpoint_dir=logdir,
        scaffold=scaffold,
        hooks=hooks,
        save_checkpoint_secs=save_interval_secs,
        save_summaries_secs=save_summaries_secs,
        save_summaries_steps=None,
        config=session_config,
    ) as session:
        steps = 0
        while not session.should_stop():
            loss = session.run(train_op)
            steps += 1
            if steps % log_every_n_steps == 0:
                tf.logging.info("step %d: loss = %.4f", steps, loss)
    return loss


def analyze_vars(variables: Any, print_info: bool = False) -> tuple[int, int]:
    """How many numbers the variables hold, and how many bytes."""
    total = size = 0
    for var in variables:
        count = var.shape.num_elements() or 0
        total += count
        size += count * var.dtype.base_dtype.size
        if print_info:
            # The program asked for a listing on its own output.
            print(f"{var.name}: {var.shape.as_list()}, {count} elements")
    return total, size


learning = types.SimpleNamespace(train=train, create_train_op=create_train_op)
ops = layers = _layers
metrics = Namespace(
    "tensorflow.contrib.slim.metrics",
    (tf.metrics,),
    STREAMING,
)
model_analyzer = types.SimpleNamespace(analyze_vars=analyze_vars)

__all__ = [
    *_layers.__all__,
    "add_arg_scope",
    "arg_scope",
    "assign_from_checkpoint_fn",
    "current_arg_scope",
    "get_local_variables",
    "get_model_variables",
    "get_or_create_global_step",
    "get_trainable_variables",
    "get_variables",
    "get_variables_by_name",
    "get_variables_by_suffix",
    "get_variables_to_restore",
    "get_unique_variable",
    "has_arg_scope",
    "layers",
    "learning",
    "local_variable",
    "losses",
    "metrics",
    "model_analyzer",
    "model_variable",
    "variable",
]
__getattr__ = removed.missing_name("tf.contrib.slim")
