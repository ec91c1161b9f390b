"""The interface between an estimator and its model function: the mode and the returned spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf
from tensorflow.python.saved_model import model_utils


class ModeKeys:
    """The purposes of a call of a model function."""

    TRAIN, EVAL, PREDICT = "train", "eval", "infer"


class _Fields(NamedTuple):
    mode: str
    predictions: Any
    loss: Any
    train_op: Any
    eval_metric_ops: dict[str, Any]
    export_outputs: Any
    training_chief_hooks: tuple[Any, ...]
    training_hooks: tuple[Any, ...]
    scaffold: Any
    evaluation_hooks: tuple[Any, ...]
    prediction_hooks: tuple[Any, ...]


class EstimatorSpec(_Fields):
    """The ops that a model function built for one mode."""

    __slots__ = ()

    def __new__(
        cls,
        mode: str,
        predictions: Any = None,
        loss: Any = None,
        train_op: Any = None,
        eval_metric_ops: Any = None,
        export_outputs: Any = None,
        training_chief_hooks: Any = None,
        training_hooks: Any = None,
        scaffold: Any = None,
        evaluation_hooks: Any = None,
        prediction_hooks: Any = None,
    ) -> EstimatorSpec:
        _require(mode, predictions, loss, train_op)
        predictions = {} if predictions is None else predictions
        if mode == ModeKeys.PREDICT:
            export_outputs = model_utils.get_export_outputs(export_outputs, predictions)
        return super().__new__(
            cls,
            mode,
            predictions,
            _scalar(loss),
            train_op,
            metric_pairs(eval_metric_ops),
            export_outputs,
            _hooks(training_chief_hooks),
            _hooks(training_hooks),
            scaffold or tf.train.Scaffold(),
            _hooks(evaluation_hooks),
            _hooks(prediction_hooks),
        )


def _require(mode: str, predictions: Any, loss: Any, train_op: Any) -> None:
    if mode == ModeKeys.TRAIN and train_op is None:
        raise ValueError("Missing train_op.")
    if mode in (ModeKeys.TRAIN, ModeKeys.EVAL) and loss is None:
        raise ValueError("Missing loss.")
    if mode == ModeKeys.PREDICT and predictions is None:
        raise ValueError("Missing predictions.")


def _scalar(loss: Any) -> Any:
    if loss is None:
        return None
    loss = tf.convert_to_tensor(loss)
    if loss.shape.num_elements() not in (None, 1):
        raise ValueError(f"Loss must be scalar, given: {loss}")
    return loss if loss.shape.ndims == 0 else tf.reshape(loss, [])


def metric_pairs(metrics: Any) -> dict[str, Any]:
    """Return each metric as its value and its update op, also for Keras metrics."""
    pairs = {}
    for name, metric in (metrics or {}).items():
        if hasattr(metric, "updates") and hasattr(metric, "result"):
            adopt_variables(metric)
            metric = (metric.result(), tf.group(*metric.updates))
        elif not isinstance(metric, (tuple, list)) or len(metric) != 2:
            raise TypeError(
                f"eval_metric_ops[{name!r}] must be a tuple of a value and an update op, "
                f"not {metric!r}"
            )
        pairs[name] = tuple(metric)
    return pairs


def adopt_variables(metric: Any) -> None:
    """Add a Keras metric's variables to the graph's collections, so that sessions initialise them.

    Keras does not add them.
    """
    for name in (tf.GraphKeys.LOCAL_VARIABLES, tf.GraphKeys.METRIC_VARIABLES):
        known = {id(variable) for variable in tf.get_collection(name)}
        for variable in metric.variables:
            if id(variable) not in known:
                tf.add_to_collection(name, variable)


def _hooks(hooks: Any) -> tuple[Any, ...]:
    chosen: tuple[Any, ...] = tuple(hooks or ())
    for hook in chosen:
        if not isinstance(hook, tf.train.SessionRunHook):
            raise TypeError(f"All hooks must be SessionRunHook instances, given: {hook}")
    return chosen


def as_named(tensors: Any, default: str) -> dict[Any, Any]:
    """Return a copy of a dict; put anything else into a dict under the name `default`."""
    return dict(tensors) if isinstance(tensors, Mapping) else {default: tensors}
