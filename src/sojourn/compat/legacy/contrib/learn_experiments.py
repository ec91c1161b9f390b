"""`tf.contrib.learn.Experiment`, its runner, its settings and its exports."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy.contrib.learn_monitors import replace_monitors_with_hooks
from sojourn.compat.legacy.estimator import config, export, exporters, schedules

_DEFAULT_UID_WHITE_LIST = [
    "tf_random_seed", "save_summary_steps", "save_checkpoints_steps", "save_checkpoints_secs",
    "session_config", "keep_checkpoint_max", "keep_checkpoint_every_n_hours",
    "log_step_count_steps",
]  # fmt: skip


class RunConfig(config.RunConfig):
    """The settings of contrib.learn: `tf.estimator.RunConfig` plus some session settings."""

    def __init__(
        self,
        master: str | None = None,
        num_cores: int = 0,
        log_device_placement: bool = False,
        gpu_memory_fraction: float = 1,
        session_config: Any = None,
        **rest: Any,
    ) -> None:
        if session_config is None:
            session_config = tf.ConfigProto(
                log_device_placement=log_device_placement,
                inter_op_parallelism_threads=num_cores,
                intra_op_parallelism_threads=num_cores,
                gpu_options=tf.GPUOptions(per_process_gpu_memory_fraction=gpu_memory_fraction),
            )
        super().__init__(session_config=session_config, **rest)

    @property
    def tf_config(self) -> Any:
        """The session configuration."""
        return self.session_config

    def uid(self, whitelist: Any = None) -> str:
        """Return the settings that must be the same throughout a program, as a string."""
        left_out = _DEFAULT_UID_WHITE_LIST if whitelist is None else whitelist
        kept = {name: value for name, value in vars(self).items() if name not in left_out}
        return ", ".join(f"{name}={value!r}" for name, value in sorted(kept.items()))


class InputFnOps(NamedTuple):
    """The result of a contrib.learn serving input function."""

    features: Any
    labels: Any
    default_inputs: Any

    @property
    def receiver_tensors(self) -> Any:
        """The placeholders that a serving request feeds."""
        return self.default_inputs


def build_parsing_serving_input_fn(feature_spec: Any, default_batch_size: Any = None) -> Any:
    """Return a serving input function that parses `tf.train.Example` protos."""
    make = export.build_parsing_serving_input_receiver_fn(feature_spec, default_batch_size)

    def serving_input_fn() -> InputFnOps:
        received = make()
        return InputFnOps(received.features, None, received.receiver_tensors)

    return serving_input_fn


class ExportStrategy(exporters.Exporter):
    """An export that runs after each evaluation."""

    def __init__(self, name: str, export_fn: Callable[..., Any]) -> None:
        self._name, self._export_fn = name, export_fn

    @property
    def name(self) -> str:
        return self._name

    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str | None = None,
        eval_result: Any = None,
        is_the_final_export: bool = True,
    ) -> Any:
        offered = {"checkpoint_path": checkpoint_path, "eval_result": eval_result}
        wanted = inspect.signature(self._export_fn).parameters
        arguments = {name: value for name, value in offered.items() if name in wanted}
        return self._export_fn(estimator, export_path, **arguments)


def make_export_strategy(
    serving_input_fn: Any,
    default_output_alternative_key: Any = None,
    assets_extra: Any = None,
    as_text: bool = False,
    exports_to_keep: int | None = 5,
    **rest: Any,
) -> ExportStrategy:
    """Return a strategy that exports the newest model for TensorFlow Serving."""
    latest = exporters.LatestExporter(
        "Servo", serving_input_fn, assets_extra, as_text, exports_to_keep
    )

    def export_fn(estimator: Any, export_dir_base: str, checkpoint_path: Any = None) -> Any:
        return latest.export(estimator, export_dir_base, checkpoint_path, None, True)

    return ExportStrategy("Servo", export_fn)


class Experiment:
    """An estimator with the inputs to train and evaluate it."""

    def __init__(
        self,
        estimator: Any,
        train_input_fn: Any,
        eval_input_fn: Any,
        eval_metrics: Any = None,
        train_steps: int | None = None,
        eval_steps: int | None = 100,
        train_monitors: Any = None,
        eval_hooks: Any = None,
        local_eval_frequency: Any = None,
        eval_delay_secs: float = 120,
        continuous_eval_throttle_secs: float = 60,
        min_eval_frequency: Any = None,
        delay_workers_by_global_step: bool = False,
        export_strategies: Any = None,
        **rest: Any,
    ) -> None:
        self.estimator, self.train_steps, self.eval_steps = estimator, train_steps, eval_steps
        self._train_input_fn, self._eval_input_fn = train_input_fn, eval_input_fn
        self._eval_metrics = eval_metrics
        self._train_hooks, self._eval_hooks = list(train_monitors or ()), list(eval_hooks or ())
        one = export_strategies is not None and not isinstance(export_strategies, (list, tuple))
        self._exports = [export_strategies] if one else list(export_strategies or ())

    def extend_train_hooks(self, additional_hooks: Any) -> None:
        """Train with these hooks too."""
        self._train_hooks.extend(additional_hooks)

    def train(self, delay_secs: Any = None) -> Any:
        """Train up to `train_steps` steps in total."""
        hooks = replace_monitors_with_hooks(self._train_hooks, self.estimator)
        return self.estimator.train(self._train_input_fn, hooks, max_steps=self.train_steps)

    def evaluate(self, delay_secs: Any = None, name: str | None = None) -> Any:
        """Return the metrics of the newest checkpoint."""
        return self.estimator.evaluate(
            input_fn=self._eval_input_fn,
            steps=self.eval_steps,
            hooks=self._eval_hooks,
            name=name,
            **self._more(),
        )

    def _more(self) -> dict[str, Any]:
        return {"metrics": self._eval_metrics} if self._eval_metrics else {}

    def train_and_evaluate(self) -> Any:
        """Train, evaluating after each checkpoint; return the last metrics and the exports."""
        hooks = replace_monitors_with_hooks(self._train_hooks, self.estimator)
        return schedules.train_and_evaluate(
            self.estimator,
            schedules.TrainSpec(self._train_input_fn, self.train_steps, hooks),
            schedules.EvalSpec(
                self._eval_input_fn,
                self.eval_steps,
                hooks=self._eval_hooks,
                exporters=self._exports,
                throttle_secs=0,
            ),
            self._more(),
        )

    def test(self) -> Any:
        """Run one training step and one evaluation step."""
        self.estimator.train(self._train_input_fn, steps=1)
        return self.estimator.evaluate(input_fn=self._eval_input_fn, steps=1)

    local_run = continuous_train_and_eval = run_std_server = train_and_evaluate


def run(
    experiment_fn: Callable[..., Any],
    output_dir: Any = None,
    schedule: str | None = None,
    run_config: Any = None,
    hparams: Any = None,
) -> Any:
    """Create the experiment and run it to the end in this process."""
    if run_config is not None:
        experiment = experiment_fn(run_config, hparams)
    else:
        experiment = experiment_fn(output_dir)
    return getattr(experiment, schedule or "train_and_evaluate")()


def tune(experiment_fn: Callable[..., Any], tuner: Any) -> None:
    """Run an experiment for each trial of the tuner."""
    while tuner.next_trial():
        experiment_fn(tuner).train_and_evaluate()
