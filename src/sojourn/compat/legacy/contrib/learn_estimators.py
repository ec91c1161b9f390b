"""The estimators of `tf.contrib.learn`: `fit` on arrays or an input function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.util import function_utils

from sojourn.compat.legacy.contrib import feature_columns, learn_monitors
from sojourn.compat.legacy.contrib.estimator import clip_gradients_by_norm
from sojourn.compat.legacy.estimator import canned, combined, heads, inputs
from sojourn.compat.legacy.estimator import estimator as core
from sojourn.compat.legacy.estimator.specs import EstimatorSpec, ModeKeys


class ModelFnOps(NamedTuple):
    """The result of a contrib.learn model function; a tuple of three values is allowed too."""

    mode: Any
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metric_ops: Any = None
    output_alternatives: Any = None
    training_chief_hooks: Any = None
    training_hooks: Any = None
    scaffold: Any = None


class PredictionKey:
    """The keys of a predictions dict."""

    CLASSES, PROBABILITIES, LOGITS = "class_ids", "probabilities", "logits"
    LOGISTIC, SCORES = "logistic", "predictions"


class MetricSpec:
    """A metric function with the keys of the predictions and labels that it compares."""

    def __init__(
        self,
        metric_fn: Callable[..., Any],
        prediction_key: str | None = None,
        label_key: str | None = None,
        weight_key: str | None = None,
    ) -> None:
        self._metric_fn, self._weight_key = metric_fn, weight_key
        self._prediction_key, self._label_key = prediction_key, label_key

    def create_metric_ops(self, features: Any, labels: Any, predictions: Any) -> Any:
        """Return the value and the update op."""
        arguments = {
            "predictions": _entry(predictions, self._prediction_key),
            "labels": _entry(labels, self._label_key),
        }
        if self._weight_key is not None:
            arguments["weights"] = features[self._weight_key]
        return self._metric_fn(**arguments)


def _entry(tensors: Any, key: str | None) -> Any:
    if not isinstance(tensors, dict):
        return tensors
    return next(iter(tensors.values())) if key is None else tensors[key]


class _Fits(core.Estimator):
    """Adds `fit`, `evaluate` and `predict` with contrib.learn's arguments."""

    _metrics: dict[str, Any]

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        input_fn: Any = None,
        steps: int | None = None,
        batch_size: int | None = None,
        monitors: Any = None,
        max_steps: int | None = None,
    ) -> Any:
        """Train on arrays, or on the output of `input_fn`."""
        input_fn = input_fn or self._input_fn(x, y, batch_size, None, shuffle=True)
        hooks = learn_monitors.replace_monitors_with_hooks(monitors, self)
        return self.train(input_fn, hooks, steps, max_steps)

    def evaluate(  # type: ignore[override]
        self,
        x: Any = None,
        y: Any = None,
        input_fn: Any = None,
        feed_fn: Any = None,
        batch_size: int | None = None,
        steps: int | None = None,
        metrics: Any = None,
        name: str | None = None,
        checkpoint_path: str | None = None,
        hooks: Any = None,
        log_progress: bool = True,
    ) -> dict[str, Any]:
        """Return the metrics on arrays, or on the output of `input_fn`."""
        if callable(x) and input_fn is None:
            x, input_fn = None, x
        input_fn = input_fn or self._input_fn(x, y, batch_size, 1, shuffle=False)
        self._metrics = metrics or {}
        try:
            return super().evaluate(input_fn, steps, hooks, checkpoint_path, name)
        finally:
            self._metrics = {}

    def predict(  # type: ignore[override]
        self,
        x: Any = None,
        input_fn: Any = None,
        batch_size: int | None = None,
        outputs: Any = None,
        as_iterable: bool = True,
        iterate_batches: bool = False,
        **rest: Any,
    ) -> Any:
        """Return the predictions: an iterator, or an array if `as_iterable` is false."""
        if callable(x) and input_fn is None:
            x, input_fn = None, x
        input_fn = input_fn or self._input_fn(x, None, batch_size, 1, shuffle=False)
        found = super().predict(
            input_fn, outputs, yield_single_examples=not iterate_batches, **rest
        )
        shown = self._shown(found, outputs)
        return shown if as_iterable else np.array(list(shown))

    def score(self, *args: Any, **kwargs: Any) -> Any:
        """`evaluate` under the name that scikit-learn uses."""
        return self.evaluate(*args, **kwargs)

    def _shown(self, found: Iterator[Any], outputs: Any) -> Iterator[Any]:
        return found

    def predict_rows(self, x: Any, batch_size: int | None, outputs: Any) -> Iterator[Any]:
        """Yield the predictions of each example, under contrib.learn's names."""
        input_fn = self._input_fn(x, None, batch_size, 1, shuffle=False)
        for row in super().predict(input_fn, outputs):
            yield self._named(row) if isinstance(row, dict) and not outputs else row

    def _named(self, predictions: Any) -> Any:
        return predictions

    def _input_fn(
        self, x: Any, y: Any, batch_size: int | None, epochs: int | None, shuffle: bool
    ) -> Any:
        if x is None:
            raise ValueError("Either x or input_fn must be provided.")
        arrays = x if isinstance(x, dict) else {feature_columns.ARRAY: np.asarray(x)}
        size = batch_size or len(next(iter(arrays.values())))
        make = inputs.numpy_input_fn(
            arrays, None if y is None else np.asarray(y), size, epochs, shuffle
        )
        return make if isinstance(x, dict) or self._takes_names() else _bare(make)

    def _takes_names(self) -> bool:
        return True

    def _call_model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> Any:
        if self._takes_names() and not isinstance(features, dict):
            features = {feature_columns.ARRAY: features}
        spec = super()._call_model_fn(features, labels, mode, config)
        metrics = getattr(self, "_metrics", None)
        if mode != ModeKeys.EVAL or not metrics:
            return spec
        made, predictions = dict(spec.eval_metric_ops), self._named(spec.predictions)
        for name, metric in metrics.items():
            if isinstance(metric, MetricSpec):
                made[name] = metric.create_metric_ops(features, labels, predictions)
            else:
                key = name if isinstance(name, tuple) else (name, None)
                made[key[0]] = metric(_entry(predictions, key[1]), labels)
        return spec._replace(eval_metric_ops=made)


def _bare(make: Any) -> Any:
    def input_fn() -> Any:
        result = make()
        features, labels = result if isinstance(result, tuple) else (result, None)
        return features[feature_columns.ARRAY], labels

    return input_fn


class Estimator(_Fits):
    """An estimator whose model function returns `ModelFnOps` or three values."""

    _labels: Any = None

    def __init__(
        self,
        model_fn: Any = None,
        model_dir: Any = None,
        config: Any = None,
        params: Any = None,
        feature_engineering_fn: Any = None,
    ) -> None:
        wanted = function_utils.fn_args(model_fn)

        def adapted(features: Any, labels: Any, mode: str, params: Any, config: Any) -> Any:
            if feature_engineering_fn is not None:
                features, labels = feature_engineering_fn(features, labels)
            offered = {"mode": mode, "params": params, "config": config, "model_dir": model_dir}
            # Pass the second argument by position: programs call it targets or labels.
            made = model_fn(
                features, labels, **{name: offered[name] for name in offered if name in wanted}
            )
            return _as_spec(made, mode)

        super().__init__(adapted, model_dir, config, params)

    def _takes_names(self) -> bool:
        return False

    def _call_model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> Any:
        # These model functions compute the loss in predict mode too, so they always need labels.
        if labels is not None:
            self._labels = tf.nest.map_structure(_signature, labels)
        elif self._labels is not None:
            labels = tf.nest.map_structure(
                lambda one: tf.placeholder(one.dtype, one.shape), self._labels
            )
        return super()._call_model_fn(features, labels, mode, config)


def _signature(label: Any) -> Any:
    return tf.TensorSpec(
        [None, *label.shape[1:]] if label.shape.ndims else label.shape, label.dtype
    )


def _as_spec(made: Any, mode: str) -> EstimatorSpec:
    if isinstance(made, EstimatorSpec):
        return made
    if not isinstance(made, ModelFnOps):
        if not isinstance(made, (tuple, list)) or len(made) != 3:
            raise ValueError(f"model_fn should return ModelFnOps or 3 values, not {made!r}")
        made = ModelFnOps(mode, *made)
    return EstimatorSpec(
        mode,
        made.predictions,
        made.loss,
        made.train_op,
        made.eval_metric_ops,
        training_chief_hooks=made.training_chief_hooks,
        training_hooks=made.training_hooks,
        scaffold=made.scaffold,
    )


def _first(values: Any) -> Any:
    """Return the first value along the last axis, for one example or a batch."""
    return values.take(0, axis=-1)


class _Classifies(_Fits):
    def predict_classes(self, *args: Any, **kwargs: Any) -> Any:
        """Return the class of each example."""
        return self.predict(*args, **{**kwargs, "outputs": None})

    def predict_proba(self, *args: Any, as_iterable: bool = True, **kwargs: Any) -> Any:
        """Return the class probabilities of each example."""
        kwargs["outputs"] = ["probabilities"]
        shown = (row["probabilities"] for row in self.predict(*args, **kwargs))
        return shown if as_iterable else np.array(list(shown))

    def _shown(self, found: Iterator[Any], outputs: Any) -> Iterator[Any]:
        return found if outputs else (_first(row["class_ids"]) for row in found)

    def _named(self, predictions: Any) -> Any:
        return {**predictions, "classes": predictions["class_ids"][..., 0]}


class _Regresses(_Fits):
    def predict_scores(self, *args: Any, **kwargs: Any) -> Any:
        """Return the predicted number of each example."""
        return self.predict(*args, **{**kwargs, "outputs": None})

    def _shown(self, found: Iterator[Any], outputs: Any) -> Iterator[Any]:
        if outputs:
            return found
        return (
            _first(row["predictions"]) if row["predictions"].shape[-1] == 1 else row["predictions"]
            for row in found
        )

    def _named(self, predictions: Any) -> Any:
        found = predictions["predictions"]
        return {**predictions, "scores": found[..., 0] if found.shape[-1] == 1 else found}


def _of_the_time(made: Any, base: Any) -> Any:
    """Adapt a core estimator to contrib.learn: other names for some arguments, the batch mean as
    its loss, and other learning rates."""

    class OfTheTime(base, made):  # type: ignore[misc]
        __doc__ = made.__doc__
        _dnn_rate, _linear_rate = 0.05, 0.2

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            if "weight_column_name" in kwargs:
                kwargs["weight_column"] = kwargs.pop("weight_column_name")
            for gone in ("enable_centered_bias", "feature_engineering_fn", "_joint_weights",
                         "embedding_lr_multipliers", "fix_global_step_increment_bug"):  # fmt: skip
                kwargs.pop(gone, None)
            for name in ("optimizer", "linear_optimizer", "dnn_optimizer"):
                if kwargs.get(name, "") is None:
                    del kwargs[name]  # use the default optimizer
            self._clip_norm = kwargs.pop("gradient_clip_norm", None)
            super().__init__(*args, **{"loss_reduction": heads.MEAN, **kwargs})

        def _optimizer(self, given: Any, rate: float) -> Any:
            optimizer, norm = super()._optimizer(given, rate), self._clip_norm
            return optimizer if norm is None else clip_gradients_by_norm(optimizer, norm)

    OfTheTime.__name__ = OfTheTime.__qualname__ = made.__name__
    return OfTheTime


LinearClassifier = _of_the_time(canned.LinearClassifier, _Classifies)
LinearRegressor = _of_the_time(canned.LinearRegressor, _Regresses)
DNNClassifier = _of_the_time(canned.DNNClassifier, _Classifies)
DNNRegressor = _of_the_time(canned.DNNRegressor, _Regresses)
DNNLinearCombinedClassifier = _of_the_time(combined.DNNLinearCombinedClassifier, _Classifies)
DNNLinearCombinedRegressor = _of_the_time(combined.DNNLinearCombinedRegressor, _Regresses)


class SKCompat:
    """Wraps an estimator in the scikit-learn interface."""

    def __init__(self, estimator: Any) -> None:
        self._estimator = estimator

    def fit(
        self,
        x: Any,
        y: Any,
        batch_size: int = 128,
        steps: int | None = None,
        max_steps: int | None = None,
        monitors: Any = None,
    ) -> SKCompat:
        """Train on arrays."""
        self._estimator.fit(x, y, None, steps, batch_size, monitors, max_steps)
        return self

    def score(
        self, x: Any, y: Any, batch_size: int = 128, steps: int | None = None, metrics: Any = None
    ) -> dict[str, Any]:
        """Return the metrics on arrays."""
        result = self._estimator.evaluate(x, y, batch_size=batch_size, steps=steps, metrics=metrics)
        return dict(result)

    def predict(self, x: Any, batch_size: int = 128, outputs: Any = None) -> Any:
        """Return the predictions on an array, as an array or a dict of arrays."""
        rows = list(self._estimator.predict_rows(x, batch_size, outputs))
        if rows and isinstance(rows[0], dict):
            return {key: np.array([row[key] for row in rows]) for key in rows[0]}
        return np.array(rows)


def infer_real_valued_columns_from_input(x: Any) -> list[Any]:
    """Return one number column per array."""
    return feature_columns.infer_real_valued_columns(x)


def infer_real_valued_columns_from_input_fn(input_fn: Any) -> list[Any]:
    """Return one number column per feature."""
    with tf.Graph().as_default():
        features, _, _ = inputs.features_and_labels(input_fn())
        return feature_columns.infer_real_valued_columns(features)
