"""`Estimator`: a model function with a folder for its checkpoints.

Each call of `train`, `evaluate` or `predict` builds a new graph and opens one monitored session
on it, which ends with the call.
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.util import function_utils

from sojourn.compat.legacy.estimator import export, inputs, runs, warm_starts
from sojourn.compat.legacy.estimator.config import RunConfig, default_session_config
from sojourn.compat.legacy.estimator.specs import EstimatorSpec, ModeKeys

_MODEL_FN_ARGUMENTS = {"features", "labels", "mode", "params", "config"}


class Estimator:
    """Trains, evaluates and uses the model that `model_fn` describes."""

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: Any = None,
        config: Any = None,
        params: Any = None,
        warm_start_from: Any = None,
    ) -> None:
        _verify_arguments(model_fn, params)
        self._config = _config(config, model_dir)
        self._model_dir: str = self._config.model_dir
        self._session_config = self._config.session_config or default_session_config()
        self._model_fn = model_fn
        self._params = copy.deepcopy({} if params is None else params)
        self._warm_start = warm_starts.settings(warm_start_from)
        tf.logging.info("Using config: %s", self._config)

    @property
    def model_dir(self) -> str:
        """The folder of the checkpoints and summaries."""
        return self._model_dir

    @property
    def config(self) -> Any:
        """A copy of the settings."""
        return copy.copy(self._config)

    @property
    def params(self) -> Any:
        """A copy of the `params` that the model function receives."""
        return copy.deepcopy(self._params)

    @property
    def model_fn(self) -> Callable[..., Any]:
        """The model function, bound to the parameters."""

        def bound(features: Any, labels: Any, mode: str, config: Any) -> Any:
            return self._call_model_fn(features, labels, mode, config)

        return bound

    def latest_checkpoint(self) -> str | None:
        """Return the newest checkpoint in `model_dir`."""
        return tf.train.latest_checkpoint(self._model_dir)  # type: ignore[no-any-return]

    def get_variable_names(self) -> list[str]:
        """Return the names of the variables in the newest checkpoint."""
        return [name for name, _ in tf.train.list_variables(self._checkpoint())]

    def get_variable_value(self, name: str) -> Any:
        """Return the value of a variable in the newest checkpoint."""
        return tf.train.load_variable(self._checkpoint(), name)

    def eval_dir(self, name: str | None = None) -> str:
        """Return the folder of the summaries of evaluations."""
        return os.path.join(self._model_dir, f"eval_{name}" if name else "eval")

    def train(
        self,
        input_fn: Callable[..., Any],
        hooks: Any = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Any = None,
    ) -> Any:
        """Train for `steps` more steps, until `max_steps` in all, or until the input ends."""
        if steps is not None and max_steps is not None:
            raise ValueError("Can not provide both steps and max_steps.")
        for name, value in (("steps", steps), ("max_steps", max_steps)):
            if value is not None and value <= 0:
                raise ValueError(f"Must specify {name} > 0, given: {value}")
        if max_steps is not None and self._steps_so_far() >= max_steps:
            tf.logging.info("Skipping training since max_steps has already saved.")
            return self
        hooks = [*(hooks or ())]
        if steps is not None or max_steps is not None:
            hooks.append(tf.train.StopAtStepHook(steps, max_steps))
        loss = runs.train(self, input_fn, hooks, list(saving_listeners or ()))
        tf.logging.info("Loss for final step: %s.", loss)
        return self

    def evaluate(
        self,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Any = None,
        checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Return the metrics over `steps` batches or all, with `loss` and `global_step`."""
        if steps is not None and steps <= 0:
            raise ValueError(f"Must specify steps > 0, given: {steps}")
        path = checkpoint_path or self.latest_checkpoint()
        if path is None:
            self._say_untrained("evaluate")
        return runs.evaluate(self, input_fn, steps, list(hooks or ()), path, name)

    def predict(
        self,
        input_fn: Callable[..., Any],
        predict_keys: Any = None,
        hooks: Any = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
    ) -> Iterator[Any]:
        """Yield the predictions by example or by batch, until the input ends."""
        path = checkpoint_path or self.latest_checkpoint()
        if path is None:
            self._say_untrained("predict")
        yield from runs.predict(
            self, input_fn, predict_keys, list(hooks or ()), path, yield_single_examples
        )

    def export_saved_model(
        self,
        export_dir_base: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        experimental_mode: str = ModeKeys.PREDICT,
    ) -> bytes:
        """Write the trained model as a SavedModel; return its folder, as bytes."""
        receivers = {experimental_mode: serving_input_receiver_fn}
        return self.experimental_export_all_saved_models(
            export_dir_base, receivers, assets_extra, as_text, checkpoint_path
        )

    def export_savedmodel(
        self,
        export_dir_base: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        strip_default_attrs: bool = False,
    ) -> bytes:
        """Call `export_saved_model`, whose original name this is."""
        return self.export_saved_model(
            export_dir_base, serving_input_receiver_fn, assets_extra, as_text, checkpoint_path
        )

    def experimental_export_all_saved_models(
        self,
        export_dir_base: str,
        input_receiver_fn_map: Mapping[str, Callable[[], Any]],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
    ) -> bytes:
        """Write one SavedModel with a graph for each mode in the map."""
        path = (
            checkpoint_path or self.latest_checkpoint() or warm_starts.checkpoint(self._warm_start)
        )
        if not path:
            raise ValueError(f"Couldn't find trained model at {self._model_dir}.")
        return export.write(
            self, export_dir_base, input_receiver_fn_map, assets_extra, as_text, path
        )

    # Used by the runs, and by other kinds of estimators.

    def _call_input_fn(self, input_fn: Callable[..., Any], mode: str) -> Any:
        return inputs.call(input_fn, mode=mode, params=self.params, config=self.config)

    def _call_model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> Any:
        wanted = function_utils.fn_args(self._model_fn)
        if labels is not None and "labels" not in wanted:
            raise ValueError("model_fn does not take labels, but input_fn returns labels.")
        offered = {"labels": labels, "mode": mode, "params": self.params, "config": config}
        arguments = {name: value for name, value in offered.items() if name in wanted}
        tf.logging.info("Calling model_fn.")
        spec = self._model_fn(features=features, **arguments)
        tf.logging.info("Done calling model_fn.")
        return self._as_spec(spec)

    def _as_spec(self, spec: Any) -> EstimatorSpec:
        if not isinstance(spec, EstimatorSpec):
            raise ValueError("model_fn should return an EstimatorSpec.")
        return spec

    def _steps_so_far(self) -> int:
        path = self.latest_checkpoint()
        if path is None:
            return 0
        try:
            return int(tf.train.load_variable(path, tf.GraphKeys.GLOBAL_STEP))
        except tf.errors.NotFoundError:
            return 0

    def _say_untrained(self, aim: str) -> None:
        said = "Could not find trained model in model_dir: %s, running initialization to %s."
        tf.logging.info(said, self._model_dir, aim)

    def _checkpoint(self) -> str:
        path = self.latest_checkpoint()
        if path is None:
            raise ValueError(f"Estimator has not been trained yet: no model in {self._model_dir}.")
        return path


def _config(config: Any, model_dir: Any) -> Any:
    """Return settings with `model_dir`, which is a new temporary folder if none is named."""
    if config is None:
        config = RunConfig()
    elif not isinstance(config, RunConfig):
        raise ValueError(f"config must be an instance of RunConfig, but provided {config}.")
    model_dir = os.fspath(model_dir) if model_dir else None
    if model_dir and config.model_dir and model_dir != config.model_dir:
        raise ValueError(
            "`model_dir` are set both in constructor and `RunConfig`, but with different values. "
            f"In constructor: {model_dir!r}, in `RunConfig`: {config.model_dir!r}"
        )
    chosen = model_dir or config.model_dir
    if chosen is None:
        chosen = tempfile.mkdtemp()
        tf.logging.warn("Using temporary folder as model directory: %s", chosen)
    return config if config.model_dir == chosen else config.replace(model_dir=chosen)


def _verify_arguments(model_fn: Callable[..., Any], params: Any) -> None:
    if model_fn is None:
        raise ValueError("model_fn must be provided to Estimator.")
    wanted = set(function_utils.fn_args(model_fn))
    if "features" not in wanted:
        raise ValueError(f"model_fn ({model_fn}) must include features argument.")
    if params is not None and "params" not in wanted:
        raise ValueError(f"model_fn ({model_fn}) does not include params argument, but is given it")
    unknown = wanted - _MODEL_FN_ARGUMENTS - {"self"}
    if unknown:
        raise ValueError(
            f"model_fn ({model_fn}) has following not expected args: {sorted(unknown)}"
        )
