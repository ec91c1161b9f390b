"""`tf.contrib.slim.learning` and `evaluation`: training ops and the loops around them."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.training import evaluation as _evaluation
from tensorflow.python.training import supervisor
from tensorflow.python.training.checkpoint_utils import checkpoints_iterator

_THE_GLOBAL_STEP: Any = 0  # default of `global_step`; None means no step is counted
_LATEST: Any = supervisor.Supervisor.USE_DEFAULT


def clip_gradient_norms(gradients_to_variables: Any, max_norm: float) -> list[Any]:
    """Clip each gradient to the norm `max_norm`."""
    return [
        (g if g is None else _on_values(g, lambda v: tf.clip_by_norm(v, max_norm)), v)
        for g, v in gradients_to_variables
    ]


def multiply_gradients(grads_and_vars: Any, gradient_multipliers: Mapping[Any, Any]) -> list[Any]:
    """Multiply each gradient by the factor given for its variable or the variable's name."""
    factors = {getattr(key, "op", key): value for key, value in gradient_multipliers.items()}
    changed = []
    for grad, var in grads_and_vars:
        factor = factors.get(var.op, factors.get(var.op.name))
        if factor is not None and grad is None:
            raise ValueError("Requested multiple of `None` gradient.")
        if factor is not None:
            grad = _on_values(grad, functools.partial(tf.multiply, tf.cast(factor, grad.dtype)))
        changed.append((grad, var))
    return changed


def add_gradients_summaries(grads_and_vars: Any) -> list[Any]:
    """Add a histogram and a norm summary for each gradient."""
    made = []
    for grad, var in grads_and_vars:
        if grad is not None:
            values = grad.values if isinstance(grad, tf.IndexedSlices) else grad
            made.append(tf.summary.histogram(f"{var.op.name}/gradient", values))
            norm = tf.global_norm([values])
            made.append(tf.summary.scalar(f"{var.op.name}/gradient_norm", norm))
    return made


def _on_values(grad: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(grad, tf.IndexedSlices):
        return tf.IndexedSlices(change(grad.values), grad.indices, grad.dense_shape)
    return change(grad)


def create_train_op(
    total_loss: Any,
    optimizer: Any,
    global_step: Any = _THE_GLOBAL_STEP,
    update_ops: Any = None,
    variables_to_train: Any = None,
    clip_gradient_norm: float = 0,
    summarize_gradients: bool = False,
    gate_gradients: int = tf.train.Optimizer.GATE_OP,
    aggregation_method: Any = None,
    colocate_gradients_with_ops: bool = False,
    gradient_multipliers: Any = None,
    check_numerics: bool = True,
    **rest: Any,
) -> Any:
    """Return one op that updates the variables, counts the step and returns the loss."""
    if global_step is _THE_GLOBAL_STEP:
        global_step = tf.train.get_or_create_global_step()
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS) if update_ops is None else update_ops
    with tf.control_dependencies(list(updates)):
        total_loss = tf.identity(total_loss)
    pairs = optimizer.compute_gradients(
        total_loss,
        variables_to_train or tf.trainable_variables(),
        gate_gradients=gate_gradients,
        aggregation_method=aggregation_method,
        colocate_gradients_with_ops=colocate_gradients_with_ops,
    )
    if gradient_multipliers:
        pairs = multiply_gradients(pairs, gradient_multipliers)
    if rest.get("transform_grads_fn"):
        pairs = rest["transform_grads_fn"](pairs)
    if clip_gradient_norm > 0:
        pairs = clip_gradient_norms(pairs, clip_gradient_norm)
    if summarize_gradients:
        add_gradients_summaries(pairs)
    moved = optimizer.apply_gradients(pairs, global_step=global_step)
    with tf.name_scope("train_op"):
        if check_numerics:
            total_loss = tf.check_numerics(total_loss, "LossTensor is inf or nan")
        with tf.control_dependencies([moved]):
            train_op = tf.identity(total_loss)
    ops = tf.get_collection_ref(tf.GraphKeys.TRAIN_OP)
    if train_op not in ops:
        ops.append(train_op)
    return train_op


def train_step(
    sess: Any, train_op: Any, global_step: Any, train_step_kwargs: Mapping[str, Any]
) -> tuple[Any, Any]:
    """Run one step; return its loss, and whether it was the last step."""
    start = time.time()
    loss, step = sess.run([train_op, global_step])
    if "should_log" in train_step_kwargs and sess.run(train_step_kwargs["should_log"]):
        took = time.time() - start
        tf.logging.info("global step %d: loss = %.4f (%.3f sec/step)", step, loss, took)
    if "should_stop" in train_step_kwargs:
        return loss, sess.run(train_step_kwargs["should_stop"])
    return loss, False


def train(
    train_op: Any,
    logdir: str | None,
    train_step_fn: Any = train_step,
    train_step_kwargs: Any = _LATEST,
    log_every_n_steps: int = 1,
    graph: Any = None,
    master: str = "",
    is_chief: bool = True,
    global_step: Any = None,
    number_of_steps: int | None = None,
    init_op: Any = _LATEST,
    init_feed_dict: Any = None,
    local_init_op: Any = _LATEST,
    init_fn: Any = None,
    ready_op: Any = _LATEST,
    summary_op: Any = _LATEST,
    save_summaries_secs: int = 600,
    summary_writer: Any = _LATEST,
    startup_delay_steps: int = 0,
    saver: Any = None,
    save_interval_secs: int = 600,
    sync_optimizer: Any = None,
    session_config: Any = None,
    session_wrapper: Any = None,
    **rest: Any,
) -> Any:
    """Run steps until one requests a stop; write checkpoints and summaries to `logdir`."""
    if train_op is None:
        raise ValueError("train_op cannot be None.")
    graph = graph or tf.get_default_graph()
    with graph.as_default():
        step = tf.train.get_or_create_global_step() if global_step is None else global_step
        if train_step_kwargs is _LATEST:
            train_step_kwargs = {}
            if number_of_steps:
                train_step_kwargs["should_stop"] = tf.greater_equal(step, number_of_steps)
            if log_every_n_steps > 0:
                train_step_kwargs["should_log"] = tf.equal(tf.mod(step, log_every_n_steps), 0)
        # The supervisor's constructor creates the ops that are not given.
        manager = tf.train.Supervisor(
            graph=graph,
            is_chief=is_chief,
            logdir=logdir,
            init_op=init_op,
            init_feed_dict=init_feed_dict,
            local_init_op=local_init_op,
            ready_op=ready_op,
            summary_op=summary_op if logdir else None,
            summary_writer=summary_writer,
            global_step=step,
            saver=saver or tf.train.Saver(),
            save_summaries_secs=save_summaries_secs,
            save_model_secs=save_interval_secs,
            init_fn=init_fn,
        )
    loss = None
    with manager.managed_session(
        master, start_standard_services=False, config=session_config
    ) as session:
        if session_wrapper is not None:
            session = session_wrapper(session)
        if logdir and is_chief:
            manager.start_standard_services(session)
        manager.start_queue_runners(session)
        try:
            while not manager.should_stop():
                loss, is_last = train_step_fn(session, train_op, step, train_step_kwargs)
                if is_last:
                    tf.logging.info("Stopping Training.")
                    manager.request_stop()
        except tf.errors.OutOfRangeError:
            # The input is exhausted, so training ends.
            manager.request_stop()
        if logdir and is_chief:
            manager.saver.save(session, manager.save_path, global_step=manager.global_step)
    return loss


def evaluate_once(
    master: str,
    checkpoint_path: str,
    logdir: str | None,
    num_evals: int = 1,
    initial_op: Any = None,
    initial_op_feed_dict: Any = None,
    eval_op: Any = None,
    eval_op_feed_dict: Any = None,
    final_op: Any = None,
    final_op_feed_dict: Any = None,
    summary_op: Any = _LATEST,
    summary_op_feed_dict: Any = None,
    variables_to_restore: Any = None,
    session_config: Any = None,
    hooks: Any = None,
) -> Any:
    """Restore a checkpoint, run `eval_op` `num_evals` times, and return the value of `final_op`."""
    summary = tf.summary.merge_all() if summary_op is _LATEST else summary_op
    all_hooks = [_evaluation._StopAfterNEvalsHook(num_evals), *(hooks or ())]
    if summary is not None and logdir:
        all_hooks.append(SummaryAtEndHook(logdir, summary, summary_op_feed_dict))
    saver = tf.train.Saver(variables_to_restore) if variables_to_restore is not None else None
    return _evaluation._evaluate_once(
        checkpoint_path,
        master=master,
        scaffold=tf.train.Scaffold(
            init_op=initial_op, init_feed_dict=initial_op_feed_dict, saver=saver
        ),
        eval_ops=eval_op,
        feed_dict=eval_op_feed_dict,
        final_ops=final_op,
        final_ops_feed_dict=final_op_feed_dict,
        hooks=all_hooks,
        config=session_config,
    )


def evaluation_loop(
    master: str,
    checkpoint_dir: str,
    logdir: str | None,
    num_evals: int = 1,
    eval_interval_secs: int = 60,
    max_number_of_evaluations: int | None = None,
    timeout: int | None = None,
    timeout_fn: Any = None,
    **rest: Any,
) -> Any:
    """Run `evaluate_once` for each new checkpoint; return the last result."""
    result = None
    paths = checkpoints_iterator(checkpoint_dir, eval_interval_secs, timeout, timeout_fn=timeout_fn)
    for done, path in enumerate(paths, 1):
        # A monitored session finalizes the graph, but the next session must add its own ops.
        tf.get_default_graph()._unsafe_unfinalize()
        result = evaluate_once(master, path, logdir, num_evals, **rest)
        if max_number_of_evaluations and done >= max_number_of_evaluations:
            break
    return result


class SummaryAtEndHook(tf.train.SessionRunHook):  # type: ignore[misc]
    """Writes the summary when a session ends."""

    def __init__(
        self, log_dir: Any = None, summary_op: Any = None, feed_dict: Any = None, **rest: Any
    ) -> None:
        self._folder, self._op, self._feeds = log_dir, summary_op, feed_dict

    def begin(self) -> None:
        self._op = tf.summary.merge_all() if self._op is None else self._op
        self._step = tf.train.get_or_create_global_step()

    def end(self, session: Any) -> None:
        step = tf.train.global_step(session, self._step)
        with tf.summary.FileWriter(self._folder) as writer:
            if self._op is not None:
                writer.add_summary(session.run(self._op, self._feeds), step)
