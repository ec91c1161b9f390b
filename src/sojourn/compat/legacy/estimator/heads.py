"""Heads turn logits into predictions, a loss, metrics and exports. This has the regression head."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy.estimator import export
from sojourn.compat.legacy.estimator.specs import EstimatorSpec, ModeKeys

SUM, MEAN = tf.losses.Reduction.SUM, tf.losses.Reduction.SUM_OVER_BATCH_SIZE
DEFAULT = "serving_default"
# The same reductions by their names in `tf.keras.losses.Reduction`.
_KERAS_REDUCTIONS = {"sum": SUM, "sum_over_batch_size": MEAN, "auto": MEAN}


class Head(abc.ABC):
    """The common part of all heads; the subclasses define the meaning of their logits."""

    logits_dimension: int

    def __init__(
        self,
        weight_column: Any = None,
        loss_reduction: str = MEAN,
        loss_fn: Any = None,
        name: str | None = None,
    ) -> None:
        self._weight_column = weight_column
        self._reduction = _KERAS_REDUCTIONS.get(loss_reduction, loss_reduction)
        self._loss_fn, self.name = loss_fn, name

    def create_loss(self, features: Any, mode: str, logits: Any, labels: Any) -> Any:
        """Return the loss over the batch."""
        labels = self._numbers(labels)
        weights = self._weights(features)
        return self._reduced(self._losses(labels, logits), weights)

    def create_estimator_spec(
        self,
        features: Any,
        mode: str,
        logits: Any,
        labels: Any = None,
        optimizer: Any = None,
        trainable_variables: Any = None,
        train_op_fn: Callable[[Any], Any] | None = None,
        update_ops: Any = None,
        regularization_losses: Any = None,
    ) -> EstimatorSpec:
        """Return the spec for `mode`."""
        # Programs log the loss by op names in this scope.
        with tf.name_scope(self.name or "head"):
            logits = two_dimensional(tf.convert_to_tensor(logits), self.logits_dimension)
            with tf.name_scope("predictions"):
                predictions = self.predictions(logits)
            if mode == ModeKeys.PREDICT:
                outputs = self._export_outputs(predictions)
                return EstimatorSpec(mode, predictions, export_outputs=outputs)
            labels = self._numbers(labels)
            weights = self._weights(features)
            each = self._losses(labels, logits)
            loss = self._reduced(each, weights)
            if regularization_losses:
                loss = loss + tf.add_n(list(regularization_losses))
            if mode == ModeKeys.EVAL:
                with tf.name_scope("metrics"):
                    metrics = self._metrics(labels, predictions, weights, each)
                return EstimatorSpec(mode, predictions, loss, eval_metric_ops=metrics)
            if self._reduction == SUM:
                mean = loss / tf.reduce_sum(weights * tf.ones_like(each))
                _summarize("average_loss", mean)
            _summarize("loss", loss)
            updates = update_ops or tf.get_collection(tf.GraphKeys.UPDATE_OPS)
            with tf.control_dependencies(list(updates)):
                train_op = _train_op(loss, train_op_fn, optimizer, trainable_variables)
            return EstimatorSpec(mode, predictions, loss, train_op)

    @abc.abstractmethod
    def predictions(self, logits: Any, keys: Any = None) -> dict[str, Any]:
        """Return the tensors of a prediction."""

    @abc.abstractmethod
    def _numbers(self, labels: Any) -> Any:
        """Return the labels in the form that the loss needs."""

    def _losses(self, labels: Any, logits: Any) -> Any:
        """Return the loss of each example."""
        if self._loss_fn is not None:
            return self._loss_fn(labels=labels, logits=logits)
        return self._default_losses(labels, logits)

    @abc.abstractmethod
    def _default_losses(self, labels: Any, logits: Any) -> Any:
        """Return the loss of each example if the program gives no loss function."""

    @abc.abstractmethod
    def _metrics(self, labels: Any, predictions: Any, weights: Any, each: Any) -> dict[str, Any]:
        """Return the metrics of an evaluation."""

    @abc.abstractmethod
    def _export_outputs(self, predictions: dict[str, Any]) -> dict[str, Any]:
        """Return the outputs of a served model."""

    def _served(self, kind: str, main: Any, predictions: dict[str, Any]) -> dict[str, Any]:
        return {DEFAULT: main, kind: main, "predict": export.PredictOutput(predictions)}

    def _weights(self, features: Any) -> Any:
        column = self._weight_column
        if column is None:
            return 1.0
        key = column if isinstance(column, str) else column.key
        weights = features[key]
        normalize = getattr(column, "normalizer_fn", None)
        weights = normalize(weights) if normalize else weights
        return two_dimensional(tf.cast(weights, tf.float32), 1)

    def _reduced(self, each: Any, weights: Any) -> Any:
        return tf.losses.compute_weighted_loss(each, weights, reduction=self._reduction)


class RegressionHead(Head):
    """The head for numbers, with the squared error as loss."""

    def __init__(
        self,
        label_dimension: int = 1,
        weight_column: Any = None,
        loss_reduction: str = MEAN,
        loss_fn: Any = None,
        inverse_link_fn: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(weight_column, loss_reduction, loss_fn, name)
        self.logits_dimension = label_dimension
        self._inverse_link_fn = inverse_link_fn

    def predictions(self, logits: Any, keys: Any = None) -> dict[str, Any]:
        if self._inverse_link_fn is None:
            return {"predictions": logits}
        return {"predictions": self._inverse_link_fn(logits), "logits": logits}

    def _numbers(self, labels: Any) -> Any:
        labels = tf.cast(the_one(labels), tf.float32)
        return two_dimensional(labels, self.logits_dimension)

    def _default_losses(self, labels: Any, logits: Any) -> Any:
        return tf.math.squared_difference(logits, labels)

    def _metrics(self, labels: Any, predictions: Any, weights: Any, each: Any) -> dict[str, Any]:
        guessed = predictions["predictions"]
        return {
            "average_loss": tf.metrics.mean(each, weights=weights),
            "label/mean": tf.metrics.mean(labels, weights=weights),
            "prediction/mean": tf.metrics.mean(guessed, weights=weights),
        }

    def _export_outputs(self, predictions: dict[str, Any]) -> dict[str, Any]:
        main = export.RegressionOutput(predictions["predictions"])
        return self._served("regression", main, predictions)


def the_one(labels: Any) -> Any:
    """Return the labels, or the only entry if they are a dict."""
    if labels is None:
        raise ValueError("You must provide a labels Tensor. Given: None.")
    if isinstance(labels, dict):
        if len(labels) != 1:
            raise ValueError(f"labels must be one tensor, not {sorted(labels)}")
        return next(iter(labels.values()))
    return labels


def two_dimensional(tensor: Any, width: int) -> Any:
    if tensor.shape.ndims == 1 and width == 1:
        return tf.expand_dims(tensor, -1)
    if tensor.shape.ndims is None:
        return tf.reshape(tensor, [-1, width])
    return tensor


def for_metric(weights: Any) -> Any:
    """Return the weights for a metric, which needs None instead of a plain number."""
    return None if isinstance(weights, float) else weights


def _summarize(name: str, value: Any) -> None:
    with tf.name_scope(""):
        tf.summary.scalar(name, value)


def _train_op(
    loss: Any, train_op_fn: Callable[[Any], Any] | None, optimizer: Any, variables: Any
) -> Any:
    if train_op_fn is not None:
        return train_op_fn(loss)
    if optimizer is None:
        raise ValueError("train_op_fn and optimizer can not both be None")
    return optimizer.minimize(loss, tf.train.get_global_step(), var_list=variables)
