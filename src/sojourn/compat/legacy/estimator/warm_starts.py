"""Starts a model from the variables of another checkpoint."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf
from tensorflow.python.training import warm_starting_util

VocabInfo = warm_starting_util.VocabInfo


class WarmStartSettings(NamedTuple):
    """Which variables start from which checkpoint, and their names in that checkpoint."""

    ckpt_to_initialize_from: str
    vars_to_warm_start: Any = ".*"
    var_name_to_vocab_info: Any = None
    var_name_to_prev_var_name: Any = None


def settings(given: Any) -> WarmStartSettings | None:
    """Return the settings that an estimator's argument `warm_start_from` means."""
    if given is None or isinstance(given, WarmStartSettings):
        return given
    if isinstance(given, (str, bytes)):
        # A SavedModel contains its variables as a checkpoint.
        path = tf.compat.as_str(given)
        if tf.saved_model.contains_saved_model(path):
            path = f"{path.rstrip('/')}/variables/variables"
        return WarmStartSettings(path)
    raise ValueError(f"warm_start_from must be a string or a WarmStartSettings, not {given!r}")


def apply(chosen: WarmStartSettings) -> None:
    """Make the variables of the current graph start from the chosen checkpoint."""
    tf.logging.info("Warm-starting with WarmStartSettings: %s", chosen)
    warm_starting_util.warm_start(*chosen)


def checkpoint(chosen: WarmStartSettings | None) -> str | None:
    """Return the path of the chosen checkpoint, which may be named by its folder."""
    path = None if chosen is None else chosen.ckpt_to_initialize_from
    if path is not None and tf.gfile.IsDirectory(path):
        path = tf.train.latest_checkpoint(path)
    return path
