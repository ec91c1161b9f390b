"""`train_and_evaluate`: training with evaluations and exports after its checkpoints."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy.estimator.exporters import Exporter


class _Training(NamedTuple):
    input_fn: Callable[..., Any]
    max_steps: int | None
    hooks: tuple[Any, ...]
    saving_listeners: tuple[Any, ...]


class TrainSpec(_Training):
    """The input, the length and the hooks of a training."""

    __slots__ = ()

    def __new__(
        cls,
        input_fn: Callable[..., Any],
        max_steps: int | None = None,
        hooks: Any = None,
        saving_listeners: Any = None,
    ) -> TrainSpec:
        if max_steps is not None and max_steps <= 0:
            raise ValueError(f"Must specify max_steps > 0, given: {max_steps}")
        return super().__new__(
            cls, input_fn, max_steps, tuple(hooks or ()), tuple(saving_listeners or ())
        )


class _Evaluation(NamedTuple):
    input_fn: Callable[..., Any]
    steps: int | None
    name: str | None
    hooks: tuple[Any, ...]
    exporters: tuple[Any, ...]
    start_delay_secs: float
    throttle_secs: float


class EvalSpec(_Evaluation):
    """The input and the frequency of evaluations, and the exports after them."""

    __slots__ = ()

    def __new__(
        cls,
        input_fn: Callable[..., Any],
        steps: int | None = 100,
        name: str | None = None,
        hooks: Any = None,
        exporters: Any = None,
        start_delay_secs: float = 120,
        throttle_secs: float = 600,
    ) -> EvalSpec:
        if steps is not None and steps <= 0:
            raise ValueError(f"Must specify steps > 0, given: {steps}")
        return super().__new__(
            cls,
            input_fn,
            steps,
            name,
            tuple(hooks or ()),
            _exporters(exporters),
            start_delay_secs,
            throttle_secs,
        )


def _exporters(given: Any) -> tuple[Any, ...]:
    chosen = () if given is None else tuple(given) if isinstance(given, Sequence) else (given,)
    for exporter in chosen:
        if not isinstance(exporter, Exporter):
            raise TypeError(f"`exporters` must be Exporter instances, given: {exporter}")
    names = [exporter.name for exporter in chosen]
    if len(set(names)) != len(names):
        raise ValueError(f"`exporters` must have unique names. Such as {names}")
    return chosen


class _Evaluates(tf.train.CheckpointSaverListener):  # type: ignore[misc]
    """Evaluates new checkpoints at most as often as the spec allows, and always the last one."""

    def __init__(
        self, estimator: Any, spec: EvalSpec, max_steps: int | None, more: Mapping[str, Any]
    ) -> None:
        self._estimator, self._spec, self._max_steps = estimator, spec, max_steps
        self._more = more
        self._timer = tf.train.SecondOrStepTimer(every_secs=spec.throttle_secs)
        self._is_first = True
        self._done_step: int | None = None
        self.metrics: Any = None
        self.exports: list[Any] = []

    def begin(self) -> None:
        self._timer.reset()
        self._is_first = True

    def after_save(self, session: Any, global_step_value: Any) -> None:
        if self._is_first:
            # The checkpoint was saved before the first step: nothing in it is new.
            self._is_first = False
            self._timer.update_last_triggered_step(global_step_value)
        elif self._timer.should_trigger_for_step(global_step_value):
            self._evaluate(global_step_value)
        else:
            tf.logging.info(
                "Skip the current checkpoint eval due to throttle secs (%s secs).",
                self._spec.throttle_secs,
            )

    def end(self, session: Any, global_step_value: Any) -> None:
        if global_step_value != self._done_step:
            self._evaluate(global_step_value)

    def _evaluate(self, step: int) -> None:
        self._timer.update_last_triggered_step(step)
        self._done_step = step
        path, spec = self._estimator.latest_checkpoint(), self._spec
        self.metrics = self._estimator.evaluate(
            input_fn=spec.input_fn,
            steps=spec.steps,
            hooks=spec.hooks,
            checkpoint_path=path,
            name=spec.name,
            **self._more,
        )
        is_last = self._max_steps is not None and step >= self._max_steps
        self.exports = [
            exporter.export(
                estimator=self._estimator,
                export_path=os.path.join(self._estimator.model_dir, "export", exporter.name),
                checkpoint_path=path,
                eval_result=self.metrics,
                is_the_final_export=is_last,
            )
            for exporter in spec.exporters
        ]


def train_and_evaluate(
    estimator: Any,
    train_spec: TrainSpec,
    eval_spec: EvalSpec,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """Train to the end with evaluations in between; return the last metrics and the exports.

    `more` has further arguments for the estimator's `evaluate`.
    """
    if not isinstance(train_spec, TrainSpec):
        raise TypeError(f"`train_spec` must have type `tf.estimator.TrainSpec`: {train_spec}")
    if not isinstance(eval_spec, EvalSpec):
        raise TypeError(f"`eval_spec` must have type `tf.estimator.EvalSpec`: {eval_spec}")
    evaluates = _Evaluates(estimator, eval_spec, train_spec.max_steps, more)
    estimator.train(
        input_fn=train_spec.input_fn,
        max_steps=train_spec.max_steps,
        hooks=list(train_spec.hooks),
        saving_listeners=[*train_spec.saving_listeners, evaluates],
    )
    return evaluates.metrics, evaluates.exports
