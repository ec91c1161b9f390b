"""Exporters, which decide which of a training's models to write as SavedModels and to keep."""

from __future__ import annotations

import abc
import glob
import math
import os
from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf


class Exporter(abc.ABC):
    """Exports models during `train_and_evaluate`. Programs may define their own exporters."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name of the exporter's folder under ``export``."""

    @abc.abstractmethod
    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str,
        eval_result: Any,
        is_the_final_export: bool,
    ) -> Any:
        """Export or skip the model; return the folder or None."""


class _Exports(Exporter):
    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Any = None,
        as_text: bool = False,
        exports_to_keep: int | None = 5,
    ) -> None:
        if exports_to_keep is not None and exports_to_keep <= 0:
            raise ValueError("`exports_to_keep`, if provided, must be a positive number.")
        self._name, self._receiver_fn = name, serving_input_receiver_fn
        self._assets_extra, self._as_text = assets_extra, as_text
        self._exports_to_keep = exports_to_keep

    @property
    def name(self) -> str:
        return self._name

    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str,
        eval_result: Any,
        is_the_final_export: bool,
    ) -> Any:
        if not self._is_wanted(estimator, eval_result, is_the_final_export):
            return None
        written = estimator.export_saved_model(
            export_path, self._receiver_fn, self._assets_extra, self._as_text, checkpoint_path
        )
        if self._exports_to_keep is not None and tf.gfile.Exists(export_path):
            made = sorted(name.rstrip("/") for name in tf.gfile.ListDirectory(export_path))
            for old in [n for n in made if n.isdigit()][: -self._exports_to_keep]:
                tf.gfile.DeleteRecursively(os.path.join(export_path, old))
        return written

    def _is_wanted(self, estimator: Any, eval_result: Any, is_final: bool) -> bool:
        return True


class LatestExporter(_Exports):
    """Exports at each evaluation, and keeps the newest exports."""


class FinalExporter(_Exports):
    """Exports once, when training is done."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._exports_to_keep = None

    def _is_wanted(self, estimator: Any, eval_result: Any, is_final: bool) -> bool:
        return is_final


def _has_smaller_loss(best_eval_result: Any, current_eval_result: Any) -> bool:
    return bool(best_eval_result["loss"] > current_eval_result["loss"])


class BestExporter(_Exports):
    """Exports a model that is better than all previous ones."""

    def __init__(
        self,
        name: str = "best_exporter",
        serving_input_receiver_fn: Any = None,
        event_file_pattern: str | None = "eval/*.tfevents.*",
        compare_fn: Callable[..., bool] = _has_smaller_loss,
        assets_extra: Any = None,
        as_text: bool = False,
        exports_to_keep: int | None = 5,
    ) -> None:
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text, exports_to_keep)
        self._compare_fn, self._event_file_pattern = compare_fn, event_file_pattern
        self._best: Any = None
        self._has_looked_back = False

    def _is_wanted(self, estimator: Any, eval_result: Any, is_final: bool) -> bool:
        if self._event_file_pattern and not self._has_looked_back:
            # In a continued training, the model also has to beat the earlier evaluations.
            pattern = os.path.join(estimator.model_dir, self._event_file_pattern)
            self._best = self._best_of_events(pattern, eval_result.get("global_step", math.inf))
            self._has_looked_back = True
        if self._best is not None and not self._compare_fn(
            best_eval_result=self._best, current_eval_result=eval_result
        ):
            return False
        self._best = eval_result
        return True

    def _best_of_events(self, pattern: str, step: float) -> Any:
        best = None
        for path in glob.glob(pattern):
            for event in tf.train.summary_iterator(path):
                if event.step >= step:
                    continue  # it belongs to this evaluation, or to a model that was discarded
                values = event.summary.value
                found = {v.tag: v.simple_value for v in values if v.HasField("simple_value")}
                if found and (best is None or self._compare_fn(best, found)):
                    best = found
        return best
