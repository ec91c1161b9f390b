"""The ready-made linear and deep estimators. `combined` has the combined ones and the baseline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy.estimator import class_heads, heads, logits
from sojourn.compat.legacy.estimator.estimator import Estimator
from sojourn.compat.legacy.oldnames import signature_of

SUM = tf.losses.Reduction.SUM
_DNN_RATE, _LINEAR_RATE = 0.05, 0.2


def step(optimizer: Any) -> Callable[[Any], Any]:
    """Return a function from a loss to the train op, which also counts the global step."""
    return lambda loss: optimizer.minimize(loss, tf.train.get_global_step())


class Canned(Estimator):
    """The common part of the ready-made estimators."""

    def _optimizer(self, given: Any, rate: float) -> Any:
        """Return the optimizer of a part; contrib.learn overrides this to clip gradients."""
        return logits.optimizer(given, rate)


def of_classes(base: Any, doc: str, places: str) -> Any:
    """Return a subclass of `base` with a head of classes.

    `places` lists its arguments; {} in it stands for the arguments of the head.
    """

    def head(named: dict[str, Any]) -> Any:
        count, weights = named.pop("n_classes", 2), named.pop("weight_column", None)
        names = named.pop("label_vocabulary", None)
        return class_heads.for_classes(count, weights, names, named.pop("loss_reduction", SUM))

    return _with_head(
        base, "Classifier", doc, places.format("n_classes weight_column label_vocabulary"), head
    )


def of_numbers(base: Any, doc: str, places: str) -> Any:
    """Return a subclass of `base` with a regression head; `places` is as in `of_classes`."""

    def head(named: dict[str, Any]) -> Any:
        width, weights = named.pop("label_dimension", 1), named.pop("weight_column", None)
        return heads.RegressionHead(width, weights, named.pop("loss_reduction", SUM))

    return _with_head(base, "Regressor", doc, places.format("label_dimension weight_column"), head)


def _with_head(
    base: Any, kind: str, doc: str, places: str, head: Callable[[dict[str, Any]], Any]
) -> Any:
    signature = signature_of(places)

    def __init__(self: Any, *args: Any, **named: Any) -> None:
        given = dict(signature.bind_partial(*args, **named).arguments)
        given.update(given.pop("rest", {}))
        base.__init__(self, head(given), **given)

    name = base.__name__.replace("Estimator", kind)
    return type(name, (base,), {"__init__": __init__, "__doc__": doc, "__module__": __name__})


class LinearEstimator(Canned):
    """A linear model with any head."""

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


_LINEAR = "feature_columns model_dir {} optimizer config"
LinearClassifier = of_classes(LinearEstimator, "A linear model of classes.", _LINEAR)
LinearRegressor = of_numbers(LinearEstimator, "A linear model of numbers.", _LINEAR)


class DNNEstimator(Canned):
    """Dense layers with any head."""

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


_DNN = "hidden_units feature_columns model_dir {} optimizer activation_fn dropout"
DNNClassifier = of_classes(DNNEstimator, "Dense layers to classes.", _DNN)
DNNRegressor = of_numbers(DNNEstimator, "Dense layers to numbers.", _DNN)
