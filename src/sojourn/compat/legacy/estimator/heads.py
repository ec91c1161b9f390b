"""Heads: from logits to predictions, a loss, metrics and exports."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import lookup_ops

from sojourn.compat.legacy.estimator import export
from sojourn.compat.legacy.estimator.specs import EstimatorSpec, ModeKeys

SUM = tf.losses.Reduction.SUM
_DEFAULT = "serving_default"


class Head(abc.ABC):
    """What every head does; the kinds below say what their logits mean."""

    logits_dimension: int

    def __init__(
        self,
        weight_column: Any = None,
        loss_reduction: str = SUM,
        loss_fn: Any = None,
        name: str | None = None,
    ) -> None:
        self._weight_column, self._reduction = weight_column, loss_reduction
        self._loss_fn, self.name = loss_fn, name

    def create_loss(self, features: Any, mode: str, logits: Any, labels: Any) -> Any:
        """The loss over the batch."""
        labels = self._numbers(labels, logits)
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
        """The spec for that mode."""
        # Programs log the loss by the names of the ops in this scope.
        with tf.name_scope(self.name or "head"):
            logits = _two_dimensional(tf.convert_to_tensor(logits), self.logits_dimension)
            with tf.name_scope("predictions"):
                predictions = self.predictions(logits)
            if mode == ModeKeys.PREDICT:
                outputs = self._export_outputs(predictions)
                return EstimatorSpec(mode, predictions, export_outputs=outputs)
            labels = self._numbers(labels, logits)
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
        """What a prediction holds."""

    @abc.abstractmethod
    def _numbers(self, labels: Any, logits: Any) -> Any:
        """The labels as the loss takes them."""

    @abc.abstractmethod
    def _losses(self, labels: Any, logits: Any) -> Any:
        """The loss of each example."""

    @abc.abstractmethod
    def _metrics(self, labels: Any, predictions: Any, weights: Any, each: Any) -> dict[str, Any]:
        """What an evaluation shows."""

    @abc.abstractmethod
    def _export_outputs(self, predictions: dict[str, Any]) -> dict[str, Any]:
        """What a served model gives."""

    def _weights(self, features: Any) -> Any:
        column = self._weight_column
        if column is None:
            return 1.0
        key = column if isinstance(column, str) else column.key
        weights = features[key]
        normalize = getattr(column, "normalizer_fn", None)
        weights = normalize(weights) if normalize else weights
        return _two_dimensional(tf.cast(weights, tf.float32), 1)

    def _reduced(self, each: Any, weights: Any) -> Any:
        return tf.losses.compute_weighted_loss(each, weights, reduction=self._reduction)


class RegressionHead(Head):
    """Numbers, by the squared error."""

    def __init__(
        self,
        label_dimension: int = 1,
        weight_column: Any = None,
        loss_reduction: str = SUM,
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

    def _numbers(self, labels: Any, logits: Any) -> Any:
        labels = tf.cast(_the_one(labels), tf.float32)
        return _two_dimensional(labels, self.logits_dimension)

    def _losses(self, labels: Any, logits: Any) -> Any:
        if self._loss_fn is not None:
            return self._loss_fn(labels=labels, logits=logits)
        return tf.math.squared_difference(logits, labels)

    def _metrics(self, labels: Any, predictions: Any, weights: Any, each: Any) -> dict[str, Any]:
        guessed = predictions["predictions"]
        return {
            "average_loss": tf.metrics.mean(each, weights=weights),
            "label/mean": tf.metrics.mean(labels, weights=weights),
            "prediction/mean": tf.metrics.mean(guessed, weights=weights),
        }

    def _export_outputs(self, predictions: dict[str, Any]) -> dict[str, Any]:
        regression = export.RegressionOutput(predictions["predictions"])
        named = export.PredictOutput(predictions)
        return {_DEFAULT: regression, "regression": regression, "predict": named}


class _Classes(Head):
    """Classes by number, or by name where there is a vocabulary."""

    _count: int

    def __init__(
        self,
        weight_column: Any = None,
        label_vocabulary: Any = None,
        loss_reduction: str = SUM,
        loss_fn: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(weight_column, loss_reduction, loss_fn, name)
        self._vocabulary = None if label_vocabulary is None else list(label_vocabulary)

    def _ids(self, labels: Any) -> Any:
        labels = _the_one(labels)
        if isinstance(labels, tf.SparseTensor):
            labels = tf.sparse.to_dense(
                labels, default_value="" if labels.dtype == tf.string else 0
            )
        labels = _two_dimensional(tf.convert_to_tensor(labels), 1)
        if self._vocabulary is not None:
            table = lookup_ops.index_table_from_tensor(self._vocabulary, dtype=labels.dtype)
            labels = table.lookup(labels)
        elif labels.dtype == tf.string:
            raise ValueError("Labels are strings: label_vocabulary must be given")
        ids = tf.cast(labels, tf.int64)
        checks = [
            tf.debugging.assert_less(
                ids, tf.cast(self._count, tf.int64), message="Labels must be < n_classes"
            ),
            tf.debugging.assert_non_negative(ids, message="Labels must be >= 0"),
        ]
        with tf.control_dependencies(checks):
            return tf.identity(ids)

    def _named(self, ids: Any) -> Any:
        if self._vocabulary is None:
            return tf.as_string(ids, name="str_classes")
        table = lookup_ops.index_to_string_table_from_tensor(
            [tf.compat.as_str_any(word) for word in self._vocabulary]
        )
        return table.lookup(ids)

    def _every(self, logits: Any) -> dict[str, Any]:
        rows = tf.shape(logits)[0]
        ids = tf.tile(tf.expand_dims(tf.range(self._count), 0), [rows, 1])
        return {"all_class_ids": ids, "all_classes": self._named(tf.cast(ids, tf.int64))}

    def _export_outputs(self, predictions: dict[str, Any]) -> dict[str, Any]:
        classes = self._named(
            tf.tile(
                tf.expand_dims(tf.range(self._count, dtype=tf.int64), 0),
                [tf.shape(predictions["probabilities"])[0], 1],
            )
        )
        classification = export.ClassificationOutput(predictions["probabilities"], classes)
        named = export.PredictOutput(predictions)
        return {_DEFAULT: classification, "classification": classification, "predict": named}


class MultiClassHead(_Classes):
    """One of several classes, by the softmax cross entropy."""

    def __init__(
        self,
        n_classes: int,
        weight_column: Any = None,
        label_vocabulary: Any = None,
        loss_reduction: str = SUM,
        loss_fn: Any = None,
        name: str | None = None,
    ) -> None:
        if n_classes is None or n_classes <= 2:
            raise ValueError(f"n_classes must be > 2: {n_classes}. For 2, use the binary head")
        super().__init__(weight_column, label_vocabulary, loss_reduction, loss_fn, name)
        self._count = self.logits_dimension = n_classes

    def predictions(self, logits: Any, keys: Any = None) -> dict[str, Any]:
        ids = tf.expand_dims(tf.argmax(logits, axis=-1), -1)
        return {
            "logits": logits,
            "probabilities": tf.nn.softmax(logits, name="probabilities"),
            "class_ids": ids,
            "classes": self._named(ids),
            **self._every(logits),
        }

    def _numbers(self, labels: Any, logits: Any) -> Any:
        return self._ids(labels)

    def _losses(self, labels: Any, logits: Any) -> Any:
        if self._loss_fn is not None:
            return self._loss_fn(labels=labels, logits=logits)
        each = tf.losses.sparse_softmax_cross_entropy(
            labels, logits, reduction=tf.losses.Reduction.NONE
        )
        return tf.reshape(each, [-1, 1])

    def _metrics(self, labels: Any, predictions: Any, weights: Any, each: Any) -> dict[str, Any]:
        guessed = predictions["class_ids"]
        return {
            "average_loss": tf.metrics.mean(each, weights=weights),
            "accuracy": tf.metrics.accuracy(labels, guessed, weights=_same(weights)),
        }


class BinaryClassHead(_Classes):
    """Yes or no, by the sigmoid cross entropy."""

    logits_dimension = 1
    _count = 2

    def __init__(
        self,
        weight_column: Any = None,
        thresholds: Any = None,
        label_vocabulary: Any = None,
        loss_reduction: str = SUM,
        loss_fn: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(weight_column, label_vocabulary, loss_reduction, loss_fn, name)
        self._thresholds = tuple(thresholds or ())

    def predictions(self, logits: Any, keys: Any = None) -> dict[str, Any]:
        both = tf.concat([tf.zeros_like(logits), logits], axis=-1)
        ids = tf.expand_dims(tf.argmax(both, axis=-1), -1)
        return {
            "logits": logits,
            "logistic": tf.sigmoid(logits, name="logistic"),
            "probabilities": tf.nn.softmax(both, name="probabilities"),
            "class_ids": ids,
            "classes": self._named(ids),
            **self._every(logits),
        }

    def _numbers(self, labels: Any, logits: Any) -> Any:
        return tf.cast(self._ids(labels), tf.float32)

    def _losses(self, labels: Any, logits: Any) -> Any:
        if self._loss_fn is not None:
            return self._loss_fn(labels=labels, logits=logits)
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)

    def _metrics(self, labels: Any, predictions: Any, weights: Any, each: Any) -> dict[str, Any]:
        logistic, ids = predictions["logistic"], predictions["class_ids"]
        weights = _same(weights)
        mean = tf.metrics.mean(labels, weights=weights)
        # What always guessing the more frequent class would get right.
        baseline = tf.maximum(mean[0], 1 - mean[0])
        metrics = {
            "average_loss": tf.metrics.mean(each, weights=weights),
            "accuracy": tf.metrics.accuracy(labels, ids, weights=weights),
            "precision": tf.metrics.precision(labels, ids, weights=weights),
            "recall": tf.metrics.recall(labels, ids, weights=weights),
            "prediction/mean": tf.metrics.mean(logistic, weights=weights),
            "label/mean": mean,
            "accuracy_baseline": (baseline, mean[1]),
            "auc": tf.metrics.auc(labels, logistic, weights=weights),
            "auc_precision_recall": tf.metrics.auc(labels, logistic, weights=weights, curve="PR"),
        }
        for threshold in self._thresholds:
            chosen = tf.cast(logistic > threshold, tf.float32)
            for kind in ("accuracy", "precision", "recall"):
                name = f"{kind}/positive_threshold_{threshold:g}"
                metrics[name] = getattr(tf.metrics, kind)(labels, chosen, weights=weights)
        return metrics

    def _export_outputs(self, predictions: dict[str, Any]) -> dict[str, Any]:
        outputs = super()._export_outputs(predictions)
        return {**outputs, "regression": export.RegressionOutput(predictions["logistic"])}


class MultiLabelHead(Head):
    """Any number of classes at once, each by its own sigmoid. Labels are ids or rows of 0 and 1."""

    def __init__(
        self,
        n_classes: int,
        weight_column: Any = None,
        thresholds: Any = None,
        label_vocabulary: Any = None,
        loss_reduction: str = tf.losses.Reduction.SUM_OVER_BATCH_SIZE,
        loss_fn: Any = None,
        classes_for_class_based_metrics: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(weight_column, loss_reduction, loss_fn, name)
        self.logits_dimension = n_classes
        self._vocabulary = None if label_vocabulary is None else list(label_vocabulary)

    def predictions(self, logits: Any, keys: Any = None) -> dict[str, Any]:
        return {"logits": logits, "probabilities": tf.sigmoid(logits, name="probabilities")}

    def _numbers(self, labels: Any, logits: Any) -> Any:
        labels = _the_one(labels)
        if isinstance(labels, tf.SparseTensor):
            values = labels.values
            if self._vocabulary is not None:
                values = lookup_ops.index_table_from_tensor(self._vocabulary).lookup(values)
            ids = tf.SparseTensor(labels.indices, tf.cast(values, tf.int64), labels.dense_shape)
            return tf.cast(tf.sparse.to_indicator(ids, self.logits_dimension), tf.float32)
        return _two_dimensional(tf.cast(labels, tf.float32), self.logits_dimension)

    def _losses(self, labels: Any, logits: Any) -> Any:
        if self._loss_fn is not None:
            return self._loss_fn(labels=labels, logits=logits)
        each = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
        return tf.reduce_mean(each, axis=-1, keepdims=True)

    def _metrics(self, labels: Any, predictions: Any, weights: Any, each: Any) -> dict[str, Any]:
        guessed = predictions["probabilities"]
        return {
            "average_loss": tf.metrics.mean(each, weights=weights),
            "auc": tf.metrics.auc(labels, guessed, weights=_same(weights)),
            "auc_precision_recall": tf.metrics.auc(
                labels, guessed, weights=_same(weights), curve="PR"
            ),
        }

    def _export_outputs(self, predictions: dict[str, Any]) -> dict[str, Any]:
        classification = export.ClassificationOutput(scores=predictions["probabilities"])
        named = export.PredictOutput(predictions)
        return {_DEFAULT: classification, "classification": classification, "predict": named}


def for_classes(
    n_classes: int, weight_column: Any, label_vocabulary: Any, loss_reduction: str
) -> Head:
    """The head of a classifier with that many classes."""
    common = {
        "weight_column": weight_column,
        "label_vocabulary": label_vocabulary,
        "loss_reduction": loss_reduction,
    }
    return BinaryClassHead(**common) if n_classes == 2 else MultiClassHead(n_classes, **common)


def _the_one(labels: Any) -> Any:
    """Labels, or the only entry of a dict of them."""
    if labels is None:
        raise ValueError("You must provide a labels Tensor. Given: None.")
    if isinstance(labels, dict):
        if len(labels) != 1:
            raise ValueError(f"labels must be one tensor, not {sorted(labels)}")
        return next(iter(labels.values()))
    return labels


def _two_dimensional(tensor: Any, width: int) -> Any:
    if tensor.shape.ndims == 1 and width == 1:
        return tf.expand_dims(tensor, -1)
    if tensor.shape.ndims is None:
        return tf.reshape(tensor, [-1, width])
    return tensor


def _same(weights: Any) -> Any:
    """Weights for a metric, which takes none rather than a number."""
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
