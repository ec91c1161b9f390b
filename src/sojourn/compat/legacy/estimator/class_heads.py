"""The heads of classifiers: one of many classes, one of two, or any number of classes at once."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import lookup_ops

from sojourn.compat.legacy.estimator import export
from sojourn.compat.legacy.estimator.heads import MEAN, Head, for_metric, the_one, two_dimensional


class _Classes(Head):
    """A head whose classes have numbers, or names if a vocabulary is given."""

    _count: int

    def __init__(
        self,
        weight_column: Any = None,
        label_vocabulary: Any = None,
        loss_reduction: str = MEAN,
        loss_fn: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(weight_column, loss_reduction, loss_fn, name)
        self._vocabulary = None if label_vocabulary is None else list(label_vocabulary)

    def _ids(self, labels: Any) -> Any:
        labels = the_one(labels)
        if isinstance(labels, tf.SparseTensor):
            labels = tf.sparse.to_dense(
                labels, default_value="" if labels.dtype == tf.string else 0
            )
        labels = two_dimensional(tf.convert_to_tensor(labels), 1)
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

    def _chosen(self, logits: Any) -> dict[str, Any]:
        """Return the most likely class for each row of logits, and all classes."""
        probabilities = tf.nn.softmax(logits, name="probabilities")
        ids = tf.expand_dims(tf.argmax(logits, axis=-1), -1)
        every = tf.tile(tf.expand_dims(tf.range(self._count), 0), [tf.shape(logits)[0], 1])
        return {
            "probabilities": probabilities,
            "class_ids": ids,
            "classes": self._named(ids),
            "all_class_ids": every,
            "all_classes": self._named(tf.cast(every, tf.int64)),
        }

    def _export_outputs(self, predictions: dict[str, Any]) -> dict[str, Any]:
        classes = self._named(tf.cast(predictions["all_class_ids"], tf.int64))
        main = export.ClassificationOutput(predictions["probabilities"], classes)
        return self._served("classification", main, predictions)


class MultiClassHead(_Classes):
    """The head for one of several classes, with the softmax cross entropy as loss."""

    def __init__(
        self,
        n_classes: int,
        weight_column: Any = None,
        label_vocabulary: Any = None,
        loss_reduction: str = MEAN,
        loss_fn: Any = None,
        name: str | None = None,
    ) -> None:
        if n_classes is None or n_classes <= 2:
            raise ValueError(f"n_classes must be > 2: {n_classes}. For 2, use the binary head")
        super().__init__(weight_column, label_vocabulary, loss_reduction, loss_fn, name)
        self._count = self.logits_dimension = n_classes

    def predictions(self, logits: Any, keys: Any = None) -> dict[str, Any]:
        return {"logits": logits, **self._chosen(logits)}

    def _numbers(self, labels: Any) -> Any:
        return self._ids(labels)

    def _default_losses(self, labels: Any, logits: Any) -> Any:
        each = tf.losses.sparse_softmax_cross_entropy(
            labels, logits, reduction=tf.losses.Reduction.NONE
        )
        return tf.reshape(each, [-1, 1])

    def _metrics(self, labels: Any, predictions: Any, weights: Any, each: Any) -> dict[str, Any]:
        guessed = predictions["class_ids"]
        return {
            "average_loss": tf.metrics.mean(each, weights=weights),
            "accuracy": tf.metrics.accuracy(labels, guessed, weights=for_metric(weights)),
        }


class BinaryClassHead(_Classes):
    """The head for one of two classes, with the sigmoid cross entropy as loss."""

    logits_dimension = 1
    _count = 2

    def __init__(
        self,
        weight_column: Any = None,
        thresholds: Any = None,
        label_vocabulary: Any = None,
        loss_reduction: str = MEAN,
        loss_fn: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(weight_column, label_vocabulary, loss_reduction, loss_fn, name)
        self._thresholds = tuple(thresholds or ())

    def predictions(self, logits: Any, keys: Any = None) -> dict[str, Any]:
        both = tf.concat([tf.zeros_like(logits), logits], axis=-1)
        logistic = tf.sigmoid(logits, name="logistic")
        return {"logits": logits, "logistic": logistic, **self._chosen(both)}

    def _numbers(self, labels: Any) -> Any:
        return tf.cast(self._ids(labels), tf.float32)

    def _default_losses(self, labels: Any, logits: Any) -> Any:
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)

    def _metrics(self, labels: Any, predictions: Any, weights: Any, each: Any) -> dict[str, Any]:
        logistic, ids = predictions["logistic"], predictions["class_ids"]
        weights = for_metric(weights)
        mean = tf.metrics.mean(labels, weights=weights)
        # The accuracy of always predicting the more frequent class.
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
    """The head for any number of classes at once, with a sigmoid for each.

    Labels are ids or rows of 0 and 1.
    """

    def __init__(
        self,
        n_classes: int,
        weight_column: Any = None,
        thresholds: Any = None,
        label_vocabulary: Any = None,
        loss_reduction: str = MEAN,
        loss_fn: Any = None,
        classes_for_class_based_metrics: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(weight_column, loss_reduction, loss_fn, name)
        self.logits_dimension = n_classes
        self._vocabulary = None if label_vocabulary is None else list(label_vocabulary)

    def predictions(self, logits: Any, keys: Any = None) -> dict[str, Any]:
        return {"logits": logits, "probabilities": tf.sigmoid(logits, name="probabilities")}

    def _numbers(self, labels: Any) -> Any:
        labels = the_one(labels)
        if isinstance(labels, tf.SparseTensor):
            values = labels.values
            if self._vocabulary is not None:
                values = lookup_ops.index_table_from_tensor(self._vocabulary).lookup(values)
            ids = tf.SparseTensor(labels.indices, tf.cast(values, tf.int64), labels.dense_shape)
            return tf.cast(tf.sparse.to_indicator(ids, self.logits_dimension), tf.float32)
        return two_dimensional(tf.cast(labels, tf.float32), self.logits_dimension)

    def _default_losses(self, labels: Any, logits: Any) -> Any:
        each = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
        return tf.reduce_mean(each, axis=-1, keepdims=True)

    def _metrics(self, labels: Any, predictions: Any, weights: Any, each: Any) -> dict[str, Any]:
        guessed = predictions["probabilities"]
        return {
            "average_loss": tf.metrics.mean(each, weights=weights),
            "auc": tf.metrics.auc(labels, guessed, weights=for_metric(weights)),
            "auc_precision_recall": tf.metrics.auc(
                labels, guessed, weights=for_metric(weights), curve="PR"
            ),
        }

    def _export_outputs(self, predictions: dict[str, Any]) -> dict[str, Any]:
        main = export.ClassificationOutput(scores=predictions["probabilities"])
        return self._served("classification", main, predictions)


def for_classes(
    n_classes: int, weight_column: Any, label_vocabulary: Any, loss_reduction: str
) -> Head:
    """Return the head of a classifier with `n_classes` classes."""
    if n_classes == 2:
        return BinaryClassHead(weight_column, None, label_vocabulary, loss_reduction)
    return MultiClassHead(n_classes, weight_column, label_vocabulary, loss_reduction)
