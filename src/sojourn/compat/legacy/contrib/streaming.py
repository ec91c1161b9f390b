"""`tf.contrib.metrics`: the metrics of `tf.metrics`, with predictions before labels."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import tensorflow.compat.v1 as tf


def _predictions_first(function: Any) -> Any:
    if list(inspect.signature(function).parameters)[:2] != ["labels", "predictions"]:
        return function

    @functools.wraps(function)
    def call(predictions: Any, labels: Any, *args: Any, **kwargs: Any) -> Any:
        return function(labels, predictions, *args, **kwargs)

    return call


STREAMING = {
    f"streaming_{name}": _predictions_first(getattr(tf.metrics, name))
    for name in dir(tf.metrics)
    if not name.startswith("_")
}
# The `tf.metrics` functions with these names take several labels per example; contrib called
# them sparse.
for _name in ("recall_at_k", "precision_at_k", "average_precision_at_k"):
    STREAMING[f"streaming_sparse_{_name}"] = STREAMING[f"streaming_{_name}"]


def recall_at_k(
    predictions: Any, labels: Any, k: int, weights: Any = None, *named: Any, **rest: Any
) -> Any:
    """Return how often the single label of an example is among its `k` likeliest classes."""
    with tf.name_scope(f"recall_at_{k}"):
        is_among = tf.cast(tf.nn.in_top_k(predictions, labels, k), tf.float32)
        return tf.metrics.mean(is_among, weights, *named, **rest)


STREAMING["streaming_recall_at_k"] = recall_at_k


def accuracy(predictions: Any, labels: Any, weights: Any = None, name: Any = None) -> Any:
    """Return the fraction of correct predictions in this batch."""
    right = tf.cast(tf.equal(predictions, labels), tf.float32)
    if weights is None:
        return tf.reduce_mean(right, name=name)
    return tf.div(tf.reduce_sum(right * weights), tf.reduce_sum(weights), name=name)


def pearson_correlation(
    predictions: Any,
    labels: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Return Pearson's correlation of predictions and labels over all batches so far."""
    with tf.variable_scope(name, "pearson_r"):
        x, y = tf.cast(predictions, tf.float32), tf.cast(labels, tf.float32)
        sums = [tf.metrics.mean(part, weights) for part in (x, y, x * y, x * x, y * y)]

        def correlation(means: Any) -> Any:
            mean_x, mean_y, both, xx, yy = means
            spread = tf.sqrt((xx - mean_x**2) * (yy - mean_y**2))
            return tf.div_no_nan(both - mean_x * mean_y, spread)

        value = correlation([each for each, _ in sums])
        update = correlation([each for _, each in sums])
    for collections, tensor in ((metrics_collections, value), (updates_collections, update)):
        for collection in collections or ():
            tf.add_to_collections(collection, tensor)
    return value, update


STREAMING["streaming_pearson_correlation"] = pearson_correlation


def aggregate_metrics(*value_update_tuples: Any) -> tuple[list[Any], list[Any]]:
    """Return a list of the values and a list of the update ops of several metrics."""
    if not value_update_tuples:
        raise ValueError("Expected at least one value_tensor/update_op pair")
    values, updates = zip(*value_update_tuples, strict=True)
    return list(values), list(updates)


def aggregate_metric_map(names_to_tuples: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values and the update ops of several metrics, each by metric name."""
    values = {name: pair[0] for name, pair in names_to_tuples.items()}
    return values, {name: pair[1] for name, pair in names_to_tuples.items()}


def f1_score(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Return the best F1 score over all thresholds and all batches so far."""
    inner = [(i + 1) / (num_thresholds - 1) for i in range(num_thresholds - 2)]
    thresholds = [-1e-7, *inner, 1 + 1e-7]
    with tf.variable_scope(name, "f1", (labels, predictions, weights)):
        counts = [
            count(labels, predictions, thresholds, weights)
            for count in (
                tf.metrics.true_positives_at_thresholds,
                tf.metrics.false_positives_at_thresholds,
                tf.metrics.false_negatives_at_thresholds,
            )
        ]

        def best(which: int) -> Any:
            right, wrong, missed = (tf.cast(pair[which], tf.float32) for pair in counts)
            precision = right / (1e-7 + right + wrong)
            recall = right / (1e-7 + right + missed)
            return tf.reduce_max(2 * precision * recall / (precision + recall + 1e-7))

        value, update = best(0), best(1)
    for collections, tensor in ((metrics_collections, value), (updates_collections, update)):
        if collections:
            tf.add_to_collections(collections, tensor)
    return value, update
