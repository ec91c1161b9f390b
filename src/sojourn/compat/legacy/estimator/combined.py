"""The estimators that combine a linear and a deep part ("wide and deep"), and the baseline."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy.estimator import logits
from sojourn.compat.legacy.estimator.canned import Canned, of_classes, of_numbers, step
from sojourn.compat.legacy.estimator.estimator import Estimator


class DNNLinearCombinedEstimator(Canned):
    """A linear part and dense layers whose logits are added, each with its own optimizer."""

    # The default learning rates differ from those of the linear and the deep estimator.
    _dnn_rate, _linear_rate = 0.001, 0.005

    def __init__(
        self,
        head: Any,
        model_dir: Any = None,
        linear_feature_columns: Any = None,
        linear_optimizer: Any = "Ftrl",
        dnn_feature_columns: Any = None,
        dnn_optimizer: Any = "Adagrad",
        dnn_hidden_units: Any = None,
        dnn_activation_fn: Any = tf.nn.relu,
        dnn_dropout: float | None = None,
        input_layer_partitioner: Any = None,
        config: Any = None,
        warm_start_from: Any = None,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        wide, deep = list(linear_feature_columns or ()), list(dnn_feature_columns or ())
        if not wide and not deep:
            raise ValueError(
                "Either linear_feature_columns or dnn_feature_columns must be defined."
            )
        if deep and not dnn_hidden_units:
            raise ValueError("dnn_hidden_units must be defined when dnn_feature_columns is.")

        def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
            logits.require_dict(features)
            parts, trained = [], []
            if deep:
                with tf.variable_scope("dnn", partitioner=input_layer_partitioner):
                    parts.append(
                        logits.dnn(
                            features,
                            deep,
                            dnn_hidden_units,
                            head.logits_dimension,
                            mode,
                            dnn_activation_fn,
                            dnn_dropout,
                            batch_norm,
                        )
                    )
                trained.append(("dnn", self._optimizer(dnn_optimizer, self._dnn_rate)))
            if wide:
                with tf.variable_scope("linear", partitioner=input_layer_partitioner):
                    parts.append(
                        logits.linear(features, wide, head.logits_dimension, linear_sparse_combiner)
                    )
                rate = logits.linear_rate(wide, self._linear_rate)
                trained.append(("linear", self._optimizer(linear_optimizer, rate)))

            def train_op_fn(loss: Any) -> Any:
                moves = [
                    chosen.minimize(
                        loss,
                        var_list=tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope=scope),
                    )
                    for scope, chosen in trained
                ]
                with tf.control_dependencies(moves):
                    return tf.assign_add(tf.train.get_global_step(), 1).op

            return head.create_estimator_spec(
                features, mode, tf.add_n(parts), labels, train_op_fn=train_op_fn
            )

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


_WIDE_AND_DEEP = (
    "model_dir linear_feature_columns linear_optimizer dnn_feature_columns dnn_optimizer "
    "dnn_hidden_units dnn_activation_fn dnn_dropout {} input_layer_partitioner config"
)
DNNLinearCombinedClassifier = of_classes(
    DNNLinearCombinedEstimator, "Wide and deep, to classes.", _WIDE_AND_DEEP
)
DNNLinearCombinedRegressor = of_numbers(
    DNNLinearCombinedEstimator, "Wide and deep, to numbers.", _WIDE_AND_DEEP
)


class BaselineEstimator(Estimator):
    """Learns one number per class or label, without using any feature."""

    def __init__(
        self, head: Any, model_dir: Any = None, optimizer: Any = "Ftrl", config: Any = None
    ) -> None:
        def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
            first = next(iter(features.values())) if isinstance(features, dict) else features
            rows = (
                first.dense_shape[0] if isinstance(first, tf.SparseTensor) else tf.shape(first)[0]
            )
            with tf.variable_scope("baseline"):
                bias = tf.get_variable(
                    "bias", [head.logits_dimension], initializer=tf.zeros_initializer()
                )
            result = tf.tile(tf.expand_dims(bias, 0), [rows, 1])
            chosen = logits.optimizer(optimizer, 0.3)
            return head.create_estimator_spec(
                features, mode, result, labels, train_op_fn=step(chosen)
            )

        super().__init__(model_fn, model_dir, config)


_BASELINE = "model_dir {} optimizer config"
BaselineClassifier = of_classes(BaselineEstimator, "How often each class comes.", _BASELINE)
BaselineRegressor = of_numbers(BaselineEstimator, "The mean of the labels.", _BASELINE)
