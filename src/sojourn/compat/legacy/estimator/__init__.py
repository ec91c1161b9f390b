"""`tf.estimator`, which TensorFlow no longer contains, for programs that use it.

`estimator` has the class and `runs` its sessions. `specs`, `config`, `inputs`, `warm_starts` and
`export` have its inputs and outputs; `schedules`, `exporters` and `stopping` train with
evaluations in between; `heads`, `class_heads`, `logits`, `canned`, `combined` and `clusters` are
the ready-made models; `tpu` and `keras_models` make estimators for TPU and Keras programs.
"""

from __future__ import annotations

import importlib
from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy.estimator import (
    canned,
    class_heads,
    clusters,
    combined,
    config,
    estimator,
    export,
    exporters,
    heads,
    inputs,
    logits,
    schedules,
    specs,
    stopping,
    tpu,
    warm_starts,
)
from sojourn.compat.legacy.namespaces import Namespace, names_of

_HOOKS = """
    CheckpointSaverHook CheckpointSaverListener FeedFnHook FinalOpsHook GlobalStepWaiterHook
    LoggingTensorHook NanLossDuringTrainingError NanTensorHook ProfilerHook SecondOrStepTimer
    SessionRunArgs SessionRunContext SessionRunHook SessionRunValues StepCounterHook StopAtStepHook
    SummarySaverHook
    """.split()


def namespace() -> Namespace:
    """Return the module `tf.estimator`."""
    return Namespace(
        "tensorflow.estimator",
        (),
        {
            "Estimator": estimator.Estimator,
            **names_of(specs, "EstimatorSpec ModeKeys"),
            **names_of(config, "RunConfig"),
            **names_of(warm_starts, "VocabInfo WarmStartSettings"),
            **names_of(schedules, "EvalSpec TrainSpec train_and_evaluate"),
            **names_of(exporters, "BestExporter Exporter FinalExporter LatestExporter"),
            **names_of(canned, "DNNClassifier DNNEstimator DNNRegressor"),
            **names_of(canned, "LinearClassifier LinearEstimator LinearRegressor"),
            **names_of(combined, "BaselineClassifier BaselineEstimator BaselineRegressor"),
            **names_of(combined, "DNNLinearCombinedClassifier DNNLinearCombinedEstimator"),
            **names_of(combined, "DNNLinearCombinedRegressor"),
            **names_of(heads, "Head RegressionHead"),
            **names_of(class_heads, "BinaryClassHead MultiClassHead MultiLabelHead"),
            **names_of(tf.train, " ".join(_HOOKS)),
            "export": Namespace("tensorflow.estimator.export", (export,)),
            "inputs": Namespace("tensorflow.estimator.inputs", (inputs,)),
            "experimental": _experimental(),
            "tpu": Namespace("tensorflow.estimator.tpu", (tpu,)),
            "classifier_parse_example_spec": _parse_spec(tf.int64),
            "regressor_parse_example_spec": _parse_spec(tf.float32),
            "add_metrics": add_metrics,
        },
        lazy={"keras": _keras},
        shown_as="tf.estimator",
    )


def _experimental() -> Namespace:
    builders = (dnn_logit_fn_builder, linear_logit_fn_builder, call_logit_fn)
    return Namespace(
        "tensorflow.estimator.experimental",
        (stopping,),
        {"KMeans": clusters.KMeans, **{each.__name__: each for each in builders}},
        shown_as="tf.estimator.experimental",
    )


def dnn_logit_fn_builder(
    units: int,
    hidden_units: Any,
    feature_columns: Any,
    activation_fn: Any = tf.nn.relu,
    dropout: Any = None,
    input_layer_partitioner: Any = None,
    batch_norm: bool = False,
) -> Any:
    """Return a function that makes the logits of dense layers."""
    named = (hidden_units, units)
    return lambda features, mode: logits.dnn(
        features, feature_columns, *named, mode, activation_fn, dropout, batch_norm
    )


def linear_logit_fn_builder(units: int, feature_columns: Any, sparse_combiner: str = "sum") -> Any:
    """Return a function that makes the logits of a linear model."""
    return lambda features: logits.linear(features, feature_columns, units, sparse_combiner)


def call_logit_fn(logit_fn: Any, features: Any, mode: str, params: Any, config: Any) -> Any:
    """Return the logits; the function receives only those values for which it has arguments."""
    return inputs.call(logit_fn, features=features, mode=mode, params=params, config=config)


def _parse_spec(default: Any) -> Any:
    def parse_spec(
        feature_columns: Any,
        label_key: str,
        label_dtype: Any = default,
        label_default: Any = None,
        weight_column: Any = None,
        **rest: Any,
    ) -> Any:
        spec = tf.feature_column.make_parse_example_spec(feature_columns)
        width = rest.get("label_dimension", 1)
        spec[label_key] = tf.FixedLenFeature([width], label_dtype, label_default)
        if isinstance(weight_column, str):
            spec[weight_column] = tf.FixedLenFeature([1], tf.float32)
        return spec

    return parse_spec


def add_metrics(given: Any, metric_fn: Any) -> Any:
    """Return an estimator that also evaluates with the metrics of `metric_fn`."""
    from tensorflow.python.util import function_utils

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
        spec = given.model_fn(features, labels, mode, config)
        if mode != specs.ModeKeys.EVAL:
            return spec
        offered = {
            "features": features,
            "labels": labels,
            "predictions": spec.predictions,
            "config": config,
        }
        wanted = function_utils.fn_args(metric_fn)
        more = metric_fn(**{name: value for name, value in offered.items() if name in wanted})
        return spec._replace(eval_metric_ops={**spec.eval_metric_ops, **specs.metric_pairs(more)})

    return estimator.Estimator(
        model_fn, given.model_dir, given.config, warm_start_from=given._warm_start
    )


def _keras() -> Any:
    kept = importlib.import_module("sojourn.compat.legacy.estimator.keras_models")
    return Namespace("tensorflow.estimator.keras", (kept,))
