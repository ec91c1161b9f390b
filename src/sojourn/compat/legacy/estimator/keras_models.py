"""`model_to_estimator`: an estimator that trains a compiled Keras model."""

from __future__ import annotations

import os
import re
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.keras import backend, models

from sojourn.compat.legacy.estimator.estimator import Estimator
from sojourn.compat.legacy.estimator.specs import EstimatorSpec, ModeKeys, adopt_variables
from sojourn.compat.legacy.estimator.warm_starts import WarmStartSettings


def model_to_estimator(
    keras_model: Any = None,
    keras_model_path: str | None = None,
    custom_objects: Any = None,
    model_dir: Any = None,
    config: Any = None,
    checkpoint_format: str = "saver",
    **rest: Any,
) -> Estimator:
    """Return an estimator that trains the model from its current weights."""
    if (keras_model is None) == (keras_model_path is None):
        raise ValueError("Exactly one of keras_model and keras_model_path must be given.")
    if keras_model is None:
        keras_model = models.load_model(keras_model_path, custom_objects)
    if not getattr(keras_model, "optimizer", None):
        raise ValueError("The given keras model has not been compiled yet.")

    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        # Set before the layers are called, because they read it then.
        backend.deprecated_internal_set_learning_phase(int(mode == ModeKeys.TRAIN))
        model = models.clone_and_build_model(
            keras_model,
            _by_name(features, keras_model.input_names),
            None if labels is None else _by_name(labels, keras_model.output_names),
            custom_objects,
            compile_clone=mode != ModeKeys.PREDICT,
            optimizer_iterations=tf.train.get_global_step(),
        )
        predictions = dict(zip(model.output_names, model.outputs, strict=True))
        if mode == ModeKeys.PREDICT:
            return EstimatorSpec(mode, predictions)
        for metric in model.metrics:
            adopt_variables(metric)
        if mode == ModeKeys.EVAL:
            model._make_test_function()
            return EstimatorSpec(
                mode, predictions, model.total_loss, eval_metric_ops=_metrics(model)
            )
        model._make_train_function()
        return EstimatorSpec(mode, predictions, model.total_loss, model.train_function.updates_op)

    estimator = Estimator(model_fn, model_dir, config)
    _start_from(estimator, keras_model)
    return estimator


def _by_name(given: Any, names: list[str]) -> Any:
    """Return the tensors in the order of the model's inputs or outputs."""
    if not isinstance(given, dict):
        return given
    if len(names) == 1 and len(given) == 1:
        return list(given.values())
    missing = [name for name in names if name not in given]
    if missing:
        raise KeyError(f"The model needs {missing}; the input function gives {sorted(given)}")
    return [given[name] for name in names]


def _metrics(model: Any) -> dict[str, Any]:
    return {
        name: (metric.result(), tf.group(*metric.updates))
        for name, metric in zip(model.metrics_names[1:], model.metrics, strict=False)
        if metric.updates
    }


def _start_from(estimator: Estimator, model: Any) -> None:
    """Save the model's weights, which the first training and anything before it start from."""
    if estimator.latest_checkpoint() is not None or not model.weights:
        return
    with model.weights[0].graph.as_default():
        folder = os.path.join(estimator.model_dir, "keras")
        tf.gfile.MakeDirs(folder)
        path = os.path.join(folder, "keras_model.ckpt")
        # With a global step, because a model that is exported from this file needs one.
        tensors = {weight.op.name: weight.read_value() for weight in model.weights}
        tensors[tf.GraphKeys.GLOBAL_STEP] = tf.constant(0, tf.int64)
        save = tf.raw_ops.SaveV2(
            prefix=path,
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=list(tensors.values()),
        )
        backend.get_session().run(save)
    names = [f"^{re.escape(weight.name)}$" for weight in model.weights]
    estimator._warm_start = WarmStartSettings(path, names)
