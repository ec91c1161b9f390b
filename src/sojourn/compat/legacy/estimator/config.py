"""`RunConfig`: how often an estimator saves and reports, and where."""

from __future__ import annotations

import copy
import inspect
import json
import os
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

_DEFAULT = object()
_SAVE_SECONDS = 600


class RunConfig:
    """The settings of an estimator's runs. One process does all the work, so it is the chief."""

    save_checkpoints_steps: int | None
    save_checkpoints_secs: int | None
    session_config: Any

    def __init__(
        self,
        model_dir: Any = None,
        tf_random_seed: int | None = None,
        save_summary_steps: int | None = 100,
        save_checkpoints_steps: Any = _DEFAULT,
        save_checkpoints_secs: Any = _DEFAULT,
        session_config: Any = None,
        keep_checkpoint_max: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10000,
        log_step_count_steps: int | None = 100,
        train_distribute: Any = None,
        device_fn: Any = None,
        protocol: Any = None,
        eval_distribute: Any = None,
        experimental_distribute: Any = None,
        experimental_max_worker_delay_secs: Any = None,
        session_creation_timeout_secs: float = 7200,
        checkpoint_save_graph_def: bool = True,
    ) -> None:
        if save_checkpoints_steps is _DEFAULT and save_checkpoints_secs is _DEFAULT:
            save_checkpoints_steps, save_checkpoints_secs = None, _SAVE_SECONDS
        elif save_checkpoints_secs is _DEFAULT:
            save_checkpoints_secs = None
        elif save_checkpoints_steps is _DEFAULT:
            save_checkpoints_steps = None
        _only_one(save_checkpoints_steps, save_checkpoints_secs)
        given = locals()
        for name in _REPLACEABLE:
            setattr(self, name, given[name])
        task = json.loads(os.environ.get("TF_CONFIG") or "{}")
        self.model_dir = _model_dir(model_dir, task.get("model_dir"))
        self.cluster_spec = tf.train.ClusterSpec({})
        self.task_type = str(task.get("task", {}).get("type") or "worker")
        self.task_id = int(task.get("task", {}).get("index") or 0)
        self.global_id_in_cluster = 0
        self.master = self.evaluation_master = ""
        self.num_worker_replicas, self.num_ps_replicas = 1, 0
        self.is_chief = True
        self.service = None

    def replace(self, **changes: Any) -> Any:
        """Return a copy with these settings changed."""
        unknown = changes.keys() - set(_REPLACEABLE)
        if unknown:
            raise ValueError(f"Replacing {', '.join(sorted(unknown))} is not supported.")
        changed = copy.copy(self)
        # Saving by steps and saving by seconds exclude each other: the new setting wins.
        steps, seconds = "save_checkpoints_steps", "save_checkpoints_secs"
        for new, other in ((steps, seconds), (seconds, steps)):
            if changes.get(new) is not None and other not in changes:
                setattr(changed, other, None)
        for name, value in changes.items():
            setattr(changed, name, value)
        _only_one(changed.save_checkpoints_steps, changed.save_checkpoints_secs)
        return changed

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in _REPLACEABLE[:6])
        return f"{type(self).__name__}({shown})"


# What `replace` may change; the rest describes the cluster.
_REPLACEABLE = tuple(inspect.signature(RunConfig).parameters)


def _only_one(steps: Any, seconds: Any) -> None:
    if steps is not None and seconds is not None:
        raise ValueError("`save_checkpoints_steps` and `save_checkpoints_secs` cannot be both set.")


def _model_dir(given: Any, of_the_cluster: Any) -> str | None:
    chosen = given or of_the_cluster
    return os.fspath(chosen) if chosen else None


def default_session_config() -> Any:
    """Return soft placement and one graph optimizer pass, the defaults of all estimators."""
    rewrite = RewriterConfig(meta_optimizer_iterations=RewriterConfig.ONE)
    options = tf.GraphOptions(rewrite_options=rewrite)
    return tf.ConfigProto(allow_soft_placement=True, graph_options=options)
