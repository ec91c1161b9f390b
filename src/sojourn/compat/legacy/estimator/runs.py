"""One run of an estimator: a graph, a monitored session on it, and its loop."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.training import evaluation

from sojourn.compat.legacy.estimator import inputs, warm_starts
from sojourn.compat.legacy.estimator.specs import ModeKeys


@contextlib.contextmanager
def _graph(estimator: Any) -> Iterator[Any]:
    """Make a new graph with a global step the default graph."""
    with tf.Graph().as_default() as graph, graph.device(estimator._config.device_fn):
        tf.set_random_seed(estimator._config.tf_random_seed)
        tf.train.create_global_step(graph)
        yield graph


def _build(estimator: Any, input_fn: Any, mode: str, path: str | None) -> tuple[Any, list[Any]]:
    """Build the model over the input; return its spec, and the hooks that the input needs.

    If no checkpoint will be restored, the model starts from the checkpoint of its warm start.
    """
    result = estimator._call_input_fn(input_fn, mode)
    features, labels, hooks = inputs.features_and_labels(result, mode != ModeKeys.PREDICT)
    spec = estimator._call_model_fn(features, labels, mode, estimator.config)
    if path is None and estimator._warm_start is not None:
        warm_starts.apply(estimator._warm_start)
    return spec, hooks


def train(estimator: Any, input_fn: Any, hooks: list[Any], listeners: list[Any]) -> Any:
    """Run the train op until a hook stops it or the input ends; return the last loss."""
    config = estimator._config
    with _graph(estimator):
        path = estimator.latest_checkpoint()
        spec, input_hooks = _build(estimator, input_fn, ModeKeys.TRAIN, path)
        _summarize_loss(spec.loss)
        _add_saver(spec.scaffold, config)
        reported = {"loss": spec.loss, "step": tf.train.get_global_step()}
        hooks = [
            *input_hooks,
            *hooks,
            tf.train.NanTensorHook(spec.loss),
            *spec.training_hooks,
        ]
        if config.log_step_count_steps is not None:
            hooks.append(
                tf.train.LoggingTensorHook(reported, every_n_iter=config.log_step_count_steps)
            )
        chief_hooks = _with_saver_hook(estimator, spec, hooks, listeners)
        loss, has_stepped = None, False
        with tf.train.MonitoredTrainingSession(
            master=config.master,
            is_chief=config.is_chief,
            checkpoint_dir=estimator.model_dir,
            scaffold=spec.scaffold,
            hooks=hooks,
            chief_only_hooks=chief_hooks,
            save_checkpoint_secs=0,  # a hook in `chief_hooks` saves
            save_summaries_steps=config.save_summary_steps,
            config=estimator._session_config,
            log_step_count_steps=config.log_step_count_steps,
            save_graph_def=config.checkpoint_save_graph_def,
        ) as session:
            while not session.should_stop():
                _, loss = session.run([spec.train_op, spec.loss])
                has_stepped = True
        if not has_stepped:
            tf.logging.warn(
                "Training with estimator made no steps. Perhaps input is empty or misspecified."
            )
        return loss


def _summarize_loss(loss: Any) -> None:
    summaries = tf.get_collection(tf.GraphKeys.SUMMARIES)
    if not any(summary.op.name == "loss" for summary in summaries):
        tf.summary.scalar("loss", loss)
    tf.add_to_collection(tf.GraphKeys.LOSSES, loss)


def _add_saver(scaffold: Any, config: Any) -> None:
    """Add the saver that the settings describe, unless the model has its own."""
    if scaffold.saver is None and not tf.get_collection(tf.GraphKeys.SAVERS):
        saver = tf.train.Saver(
            sharded=True,
            max_to_keep=config.keep_checkpoint_max,
            keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
            defer_build=True,
            save_relative_paths=True,
        )
        tf.add_to_collection(tf.GraphKeys.SAVERS, saver)


def _with_saver_hook(
    estimator: Any, spec: Any, hooks: list[Any], listeners: list[Any]
) -> list[Any]:
    """Return the chief's hooks, with one that saves unless the program already has one."""
    config, chief_hooks = estimator._config, list(spec.training_chief_hooks)
    saving = [h for h in [*hooks, *chief_hooks] if isinstance(h, tf.train.CheckpointSaverHook)]
    if saving:
        saving[0]._listeners.extend(listeners)
    elif config.save_checkpoints_secs or config.save_checkpoints_steps:
        chief_hooks.append(
            tf.train.CheckpointSaverHook(
                estimator.model_dir,
                save_secs=config.save_checkpoints_secs,
                save_steps=config.save_checkpoints_steps,
                scaffold=spec.scaffold,
                listeners=listeners,
            )
        )
    elif listeners:
        raise ValueError(
            "There should be a CheckpointSaverHook to use saving_listeners. Please set one of the "
            "RunConfig.save_checkpoints_steps or RunConfig.save_checkpoints_secs."
        )
    return chief_hooks


def evaluate(
    estimator: Any,
    input_fn: Any,
    steps: int | None,
    hooks: list[Any],
    path: str | None,
    name: str | None,
) -> dict[str, Any]:
    """Update the metrics over the input, and return them."""
    with _graph(estimator):
        spec, input_hooks = _build(estimator, input_fn, ModeKeys.EVAL, path)
        pairs = dict(spec.eval_metric_ops)
        if "loss" in pairs:
            raise ValueError('Metric with name "loss" is not allowed, because Estimator adds it.')
        pairs["loss"] = tf.metrics.mean(spec.loss)
        values = {key: value for key, (value, _) in pairs.items()}
        if tf.GraphKeys.GLOBAL_STEP in values:
            raise ValueError('Metric with name "global_step" is not allowed: Estimator adds it.')
        values[tf.GraphKeys.GLOBAL_STEP] = tf.train.get_global_step()
        hooks = [*input_hooks, *hooks, *spec.evaluation_hooks]
        if steps is not None:
            hooks.append(evaluation._StopAfterNEvalsHook(num_evals=steps))
        result: dict[str, Any] = evaluation._evaluate_once(
            checkpoint_path=path,
            master=estimator._config.evaluation_master,
            scaffold=spec.scaffold,
            eval_ops=tf.group(*(update for _, update in pairs.values())),
            final_ops=values,
            hooks=hooks,
            config=estimator._session_config,
        )
        _write_summary(estimator.eval_dir(name), result)
        return result


def _write_summary(folder: str, metrics: dict[str, Any]) -> None:
    step = metrics[tf.GraphKeys.GLOBAL_STEP]
    shown = ", ".join(f"{name} = {value}" for name, value in sorted(metrics.items()))
    tf.logging.info("Saving dict for global step %d: %s", step, shown)
    summary = tf.Summary()
    for name, value in metrics.items():
        if name == tf.GraphKeys.GLOBAL_STEP or value is None:
            continue
        if np.ndim(value) == 0 and np.issubdtype(np.asarray(value).dtype, np.number):
            summary.value.add(tag=name, simple_value=float(value))
        elif isinstance(value, bytes):
            # The metric is a summary op, with images or histograms of the evaluation.
            inner = tf.Summary.FromString(value)
            for index, part in enumerate(inner.value):
                part.tag = f"{name}/{index}"
            summary.value.extend(inner.value)
    writer = tf.summary.FileWriterCache.get(folder)
    writer.add_summary(summary, step)
    writer.flush()


def predict(
    estimator: Any,
    input_fn: Any,
    keys: Any,
    hooks: list[Any],
    path: str | None,
    single: bool,
) -> Iterator[Any]:
    """Yield the predictions. Between two of them the program's default graph is unchanged."""
    with _graph(estimator) as graph:
        spec, input_hooks = _build(estimator, input_fn, ModeKeys.PREDICT, path)
        predictions = _chosen(spec.predictions, keys)
        creator = tf.train.ChiefSessionCreator(
            checkpoint_filename_with_path=path,
            master=estimator._config.master,
            scaffold=spec.scaffold,
            config=estimator._session_config,
        )
        session = tf.train.MonitoredSession(
            creator, hooks=[*input_hooks, *hooks, *spec.prediction_hooks]
        )
    with session:
        while not session.should_stop():
            with graph.as_default():
                batch = session.run(predictions)
            if not single:
                yield batch
            elif isinstance(batch, dict):
                for row in range(_batch_length(batch)):
                    yield {key: value[row] for key, value in batch.items()}
            else:
                yield from batch


def _chosen(predictions: Any, keys: Any) -> Any:
    if not keys:
        return predictions
    if not isinstance(predictions, dict):
        raise ValueError("predict_keys argument is not valid in case of non-dict predictions.")
    keys = [keys] if isinstance(keys, str) else keys
    chosen = {key: value for key, value in predictions.items() if key in keys}
    if not chosen:
        raise ValueError(
            f"Expected to run at least one output from {list(predictions)}, not {keys}"
        )
    return chosen


def _batch_length(batch: dict[str, Any]) -> int:
    lengths = {key: len(value) for key, value in batch.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"Batch length of predictions should be same. {lengths}")
    return next(iter(lengths.values()))
