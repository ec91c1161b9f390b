"""`tf.contrib.learn.monitors`: the predecessors of `tf.train.SessionRunHook`."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


class ValidationMonitor(tf.train.SessionRunHook):  # type: ignore[misc]
    """Evaluates new checkpoints while training; stops early if the watched metric stalls."""

    def __init__(
        self,
        x: Any = None,
        y: Any = None,
        input_fn: Any = None,
        batch_size: int | None = None,
        eval_steps: int | None = None,
        every_n_steps: int = 100,
        metrics: Any = None,
        hooks: Any = None,
        early_stopping_rounds: int | None = None,
        early_stopping_metric: str = "loss",
        early_stopping_metric_minimize: bool = True,
        name: str | None = None,
        **rest: Any,
    ) -> None:
        if x is None and input_fn is None:
            raise ValueError("Either x or input_fn should be provided.")
        self._arguments = {"input_fn": input_fn, "steps": eval_steps, "hooks": hooks, "name": name}
        if x is not None:
            self._arguments.update(x=x, y=y, batch_size=batch_size)
        if metrics:
            self._arguments["metrics"] = metrics
        self._every, self._rounds = every_n_steps, early_stopping_rounds
        self._watched, self._minimize = early_stopping_metric, early_stopping_metric_minimize
        self._estimator: Any = None
        self._seen: str | None = None
        self.best_step = self.best_value = self.best_metrics = None
        self.early_stopped = False

    def set_estimator(self, estimator: Any) -> None:
        """Set the estimator that is being trained."""
        self._estimator = estimator
        self._seen = estimator.latest_checkpoint()

    def begin(self) -> None:
        self._step = tf.train.get_global_step()

    def before_run(self, run_context: Any) -> Any:
        return tf.train.SessionRunArgs(self._step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        step = int(run_values.results)
        path = self._estimator.latest_checkpoint()
        if step % self._every or path is None or path == self._seen:
            return
        self._seen = path
        found = self._estimator.evaluate(checkpoint_path=path, **self._arguments)
        shown = ", ".join(f"{name} = {value}" for name, value in sorted(found.items()))
        tf.logging.info("Validation (step %d): %s", step, shown)
        if self._rounds is not None and self._has_stalled(step, found):
            tf.logging.info("Stopping. Best step: %s with %s.", self.best_step, self.best_value)
            self.early_stopped = True
            run_context.request_stop()

    def _has_stalled(self, step: int, found: dict[str, Any]) -> bool:
        value = found[self._watched]
        best = self.best_value
        if best is None or (value < best if self._minimize else value > best):
            self.best_step, self.best_value, self.best_metrics = step, value, found  # type: ignore[assignment]
            return False
        return step - (self.best_step or 0) >= (self._rounds or 0)


def replace_monitors_with_hooks(monitors_or_hooks: Any, estimator: Any) -> list[Any]:
    """Return only the hooks, after passing the estimator to those that need it."""
    hooks = [hook for hook in monitors_or_hooks or () if isinstance(hook, tf.train.SessionRunHook)]
    for hook in hooks:
        if hasattr(hook, "set_estimator"):
            hook.set_estimator(estimator)
    return hooks


PrintTensor = tf.train.LoggingTensorHook
CheckpointSaver = tf.train.CheckpointSaverHook
SummarySaver = tf.train.SummarySaverHook
NanLoss = tf.train.NanTensorHook
StopAtStep = tf.train.StopAtStepHook
StepCounter = tf.train.StepCounterHook
