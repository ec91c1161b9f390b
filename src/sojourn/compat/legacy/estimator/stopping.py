"""Hooks that end a training early, depending on the results of its evaluations."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy.oldnames import renaming


class _Stops(tf.train.SessionRunHook):  # type: ignore[misc]
    """Calls `should_stop` at intervals, and ends the training when it returns true."""

    def __init__(
        self, should_stop: Callable[[], bool], seconds: float | None, steps: int | None
    ) -> None:
        self._should_stop = should_stop
        self._timer = tf.train.SecondOrStepTimer(every_secs=seconds, every_steps=steps)

    def begin(self) -> None:
        self._step = tf.train.get_global_step()

    def before_run(self, run_context: Any) -> Any:
        return tf.train.SessionRunArgs(self._step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        step = run_values.results
        if self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            if self._should_stop():
                tf.logging.info("Requesting early stopping at global step %d", step)
                run_context.request_stop()


def make_early_stopping_hook(
    estimator: Any,
    should_stop_fn: Callable[[], bool],
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Any:
    """Return a hook that ends the training once `should_stop_fn()` is true."""
    if run_every_secs is not None and run_every_steps is not None:
        raise ValueError("Only one of `run_every_secs` and `run_every_steps` must be set.")
    return _Stops(should_stop_fn, run_every_secs, run_every_steps)


def make_stop_at_checkpoint_step_hook(
    estimator: Any, last_step: int, wait_after_file_check_secs: int = 30
) -> Any:
    """Return a hook that ends the training at `last_step`: one process does all the work."""
    return tf.train.StopAtStepHook(last_step=last_step)


def read_eval_metrics(eval_dir: str) -> dict[int, dict[str, float]]:
    """Return the metrics of the evaluations with summaries in `eval_dir`, by global step."""
    found: dict[int, dict[str, float]] = {}
    for path in tf.gfile.Glob(os.path.join(eval_dir, "*tfevents*")):
        for event in tf.train.summary_iterator(path):
            values = {
                v.tag: v.simple_value for v in event.summary.value if v.HasField("simple_value")
            }
            if values:
                found.setdefault(event.step, {}).update(values)
    return dict(sorted(found.items()))


Values = list[tuple[int, float]]  # global steps and the values of a metric at them


def _hook(is_over: Callable[[Values, Any], bool], limit_name: str) -> Callable[..., Any]:
    """Return a function that makes hooks which stop once `is_over(values, limit)` is true."""

    def make(
        estimator: Any,
        metric_name: str,
        limit: Any,
        eval_dir: str | None = None,
        min_steps: int = 0,
        run_every_secs: float | None = 60,
        run_every_steps: int | None = None,
    ) -> Any:
        folder = eval_dir or estimator.eval_dir()

        def should_stop() -> bool:
            values = [
                (step, metrics[metric_name])
                for step, metrics in read_eval_metrics(folder).items()
                if step >= min_steps and metric_name in metrics
            ]
            return is_over(values, limit)

        return make_early_stopping_hook(estimator, should_stop, run_every_secs, run_every_steps)

    return renaming(make, **{limit_name: "limit"})


def _has_passed(compare: Callable[[Any, Any], bool], values: Values, threshold: Any) -> bool:
    return any(compare(value, threshold) for _, value in values)


def _is_stuck(is_better: Callable[[Any, Any], bool], values: Values, most_steps: Any) -> bool:
    """Whether the metric has not improved for `most_steps` steps."""
    best: float | None = None
    best_step = 0
    for step, value in values:
        if best is None or is_better(value, best):
            best, best_step = value, step
        elif step - best_step >= most_steps:
            return True
    return False


stop_if_higher_hook = _hook(partial(_has_passed, operator.gt), "threshold")
stop_if_lower_hook = _hook(partial(_has_passed, operator.lt), "threshold")
stop_if_no_increase_hook = _hook(partial(_is_stuck, operator.gt), "max_steps_without_increase")
stop_if_no_decrease_hook = _hook(partial(_is_stuck, operator.lt), "max_steps_without_decrease")


class InMemoryEvaluatorHook(tf.train.SessionRunHook):  # type: ignore[misc]
    """Evaluates during training, every `every_n_iter` steps, from a temporary checkpoint."""

    def __init__(
        self,
        estimator: Any,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Any = None,
        name: str | None = None,
        every_n_iter: int = 100,
    ) -> None:
        self._arguments = {"input_fn": input_fn, "steps": steps, "hooks": hooks, "name": name}
        self._estimator, self._name = estimator, name
        self._timer = tf.train.SecondOrStepTimer(every_steps=every_n_iter)

    def begin(self) -> None:
        self._step = tf.train.get_global_step()
        self._saver = tf.train.Saver(sharded=True, max_to_keep=1)

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._evaluate(session)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        step = run_context.session.run(self._step)
        if self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            self._evaluate(run_context.session)

    def end(self, session: Any) -> None:
        self._evaluate(session)

    def _evaluate(self, session: Any) -> None:
        folder = os.path.join(self._estimator.eval_dir(self._name), "in_memory")
        tf.gfile.MakeDirs(folder)
        path = self._saver.save(
            session, os.path.join(folder, "model"), latest_filename="none", write_meta_graph=False
        )
        self._estimator.evaluate(checkpoint_path=path, **self._arguments)
        tf.gfile.DeleteRecursively(folder)
