"""The ready-made estimators: linear, deep, both together, and the baseline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy.estimator import class_heads, heads, logits
from sojourn.compat.legacy.estimator.estimator import Estimator

SUM = tf.losses.Reduction.SUM
_DNN_RATE, _LINEAR_RATE = 0.05, 0.2


def step(optimizer: Any) -> Callable[[Any], Any]:
    """The train op of an optimizer, which counts the global step."""
    return lambda loss: optimizer.minimize(loss, tf.train.get_global_step())


class Canned(Estimator):
    """What the ready-made estimators have in common."""

    def _optimizer(self, given: Any, rate: float) -> Any:
        """What trains a part; those of contrib.learn clip its gradients."""
        return logits.optimizer(given, rate)


class LinearEstimator(Canned):
    """A linear model under any head."""

    def __init__(
        self,
        head: Any,
        feature_columns: Any,
        model_dir: Any = None,
        optimizer: Any = "Ftrl",
        config: Any = None,
        partitioner: Any = None,
        sparse_combiner: str = "sum",
        warm_start_from: Any = None,
    ) -> None:
        columns = list(feature_columns or ())

        def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
            logits.require_dict(features)
            chosen = self._optimizer(optimizer, logits.linear_rate(columns, _LINEAR_RATE))
            with tf.variable_scope("linear", partitioner=partitioner):
                result = logits.linear(features, columns, head.logits_dimension, sparse_combiner)
                return head.create_estimator_spec(
                    features, mode, result, labels, train_op_fn=step(chosen)
                )

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class LinearClassifier(LinearEstimator):
    """A linear model of classes."""

    def __init__(
        self,
        feature_columns: Any,
        model_dir: Any = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Any = None,
        *,
        loss_reduction: str = SUM,
        **rest: Any,
    ) -> None:
        head = class_heads.for_classes(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(head, feature_columns, model_dir, **rest)


class LinearRegressor(LinearEstimator):
    """A linear model of numbers."""

    def __init__(
        self,
        feature_columns: Any,
        model_dir: Any = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        *,
        loss_reduction: str = SUM,
        **rest: Any,
    ) -> None:
        head = heads.RegressionHead(label_dimension, weight_column, loss_reduction)
        super().__init__(head, feature_columns, model_dir, **rest)


class DNNEstimator(Canned):
    """Dense layers under any head."""

    def __init__(
        self,
        head: Any,
        hidden_units: Any,
        feature_columns: Any,
        model_dir: Any = None,
        optimizer: Any = "Adagrad",
        activation_fn: Any = tf.nn.relu,
        dropout: float | None = None,
        input_layer_partitioner: Any = None,
        config: Any = None,
        warm_start_from: Any = None,
        batch_norm: bool = False,
    ) -> None:
        columns = list(feature_columns or ())

        def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
            logits.require_dict(features)
            chosen = self._optimizer(optimizer, _DNN_RATE)
            with tf.variable_scope("dnn", partitioner=input_layer_partitioner):
                result = logits.dnn(
                    features,
                    columns,
                    hidden_units,
                    head.logits_dimension,
                    mode,
                    activation_fn,
                    dropout,
                    batch_norm,
                )
                return head.create_estimator_spec(
                    features, mode, result, labels, train_op_fn=step(chosen)
                )

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class DNNClassifier(DNNEstimator):
    """Dense layers to classes."""

    def __init__(
        self,
        hidden_units: Any,
        feature_columns: Any,
        model_dir: Any = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Any = None,
        *,
        loss_reduction: str = SUM,
        **rest: Any,
    ) -> None:
        head = class_heads.for_classes(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(head, hidden_units, feature_columns, model_dir, **rest)


class DNNRegressor(DNNEstimator):
    """Dense layers to numbers."""

    def __init__(
        self,
        hidden_units: Any,
        feature_columns: Any,
        model_dir: Any = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        *,
        loss_reduction: str = SUM,
        **rest: Any,
    ) -> None:
        head = heads.RegressionHead(label_dimension, weight_column, loss_reduction)
        super().__init__(head, hidden_units, feature_columns, model_dir, **rest)
