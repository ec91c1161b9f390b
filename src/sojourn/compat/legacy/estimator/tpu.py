"""`TPUEstimator` and related classes, running on the CPU or GPU.

They work as with ``use_tpu=False``: one replica, the whole batch, ordinary ops. Programs that
request a TPU get the same, because no TPU exists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import summary_ops_v2

from sojourn.compat.legacy.estimator import inputs
from sojourn.compat.legacy.estimator.config import RunConfig as _RunConfig
from sojourn.compat.legacy.estimator.estimator import Estimator
from sojourn.compat.legacy.estimator.specs import EstimatorSpec, ModeKeys


class InputPipelineConfig:
    """The ways to spread a TPU's input over hosts."""

    PER_SHARD_V1, PER_HOST_V1, PER_HOST_V2, BROADCAST, SLICED = 1, 2, 3, 4, 5


class TPUConfig(NamedTuple):
    """The settings of a TPU, stored only so that the program can read them."""

    iterations_per_loop: int = 2
    num_shards: int | None = None
    num_cores_per_replica: int | None = None
    per_host_input_for_training: Any = True
    tpu_job_name: str | None = None
    initial_infeed_sleep_secs: int | None = None
    input_partition_dims: Any = None
    eval_training_input_configuration: Any = InputPipelineConfig.PER_HOST_V1
    experimental_host_call_every_n_steps: int = 1
    experimental_allow_per_host_v2_parallel_get_next: bool = False
    experimental_feed_hook: Any = None


class RunConfig(_RunConfig):
    """`RunConfig` with the settings of a TPU."""

    def __init__(
        self,
        tpu_config: TPUConfig | None = None,
        evaluation_master: str | None = None,
        master: str | None = None,
        cluster: Any = None,
        **rest: Any,
    ) -> None:
        super().__init__(**rest)
        self.tpu_config = tpu_config or TPUConfig()
        self.cluster = cluster

    def replace(self, **changes: Any) -> Any:
        settings = changes.pop("tpu_config", self.tpu_config)
        changed = super().replace(**changes)
        changed.tpu_config = settings
        return changed


class TPUEstimatorSpec(NamedTuple):
    """The result of a model function for a TPU: metrics are built from its tensors later."""

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metrics: Any = None
    export_outputs: Any = None
    scaffold_fn: Any = None
    host_call: Any = None
    training_hooks: Any = None
    evaluation_hooks: Any = None
    prediction_hooks: Any = None

    def as_estimator_spec(self) -> EstimatorSpec:
        """Return the spec for a CPU or GPU."""
        training_hooks = list(self.training_hooks or ())
        if self.host_call is not None and self.mode == ModeKeys.TRAIN:
            training_hooks.append(_CallsHost(_call_on_tensors(self.host_call)))
        return EstimatorSpec(
            mode=self.mode,
            predictions=self.predictions,
            loss=self.loss,
            train_op=self.train_op,
            eval_metric_ops=None
            if self.eval_metrics is None
            else _call_on_tensors(self.eval_metrics),
            export_outputs=self.export_outputs,
            scaffold=self.scaffold_fn() if self.scaffold_fn else None,
            training_hooks=training_hooks,
            evaluation_hooks=self.evaluation_hooks,
            prediction_hooks=self.prediction_hooks,
        )


def _call_on_tensors(pair: Any) -> Any:
    function, tensors = pair
    return function(**tensors) if isinstance(tensors, dict) else function(*tensors)


class _CallsHost(tf.train.SessionRunHook):  # type: ignore[misc]
    """Runs the ops that `host_call` returned, which write summaries, with each step."""

    def __init__(self, returned: Any) -> None:
        self._ops = tf.nest.flatten(returned)
        self._start = summary_ops_v2.summary_writer_initializer_op()

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self._start)

    def before_run(self, run_context: Any) -> Any:
        return tf.train.SessionRunArgs(self._ops)


class TPUEstimator(Estimator):
    """An estimator that passes the batch size to its functions as ``params["batch_size"]``."""

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: Any = None,
        config: Any = None,
        params: Any = None,
        use_tpu: bool = True,
        train_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        predict_batch_size: int | None = None,
        batch_axis: Any = None,
        eval_on_tpu: bool = True,
        export_to_tpu: bool = True,
        export_to_cpu: bool = True,
        warm_start_from: Any = None,
        **rest: Any,
    ) -> None:
        if params is not None and "batch_size" in params:
            raise ValueError("'batch_size' in params is reserved: use train_batch_size")
        self._batch_sizes = {
            ModeKeys.TRAIN: train_batch_size,
            ModeKeys.EVAL: eval_batch_size or train_batch_size,
            ModeKeys.PREDICT: predict_batch_size or eval_batch_size or train_batch_size,
        }
        if use_tpu:
            tf.logging.warn("There is no TPU here: the estimator runs on the CPU or GPU.")
        self._is_exporting = False
        super().__init__(
            model_fn,
            model_dir,
            config or RunConfig(),
            {} if params is None else params,
            warm_start_from,
        )

    def experimental_export_all_saved_models(self, *args: Any, **kwargs: Any) -> bytes:
        """Export as `Estimator` does; a served model gets no batch size."""
        self._is_exporting = True
        try:
            return super().experimental_export_all_saved_models(*args, **kwargs)
        finally:
            self._is_exporting = False

    def _call_input_fn(self, input_fn: Callable[..., Any], mode: str) -> Any:
        params = self._params_for(mode)
        return inputs.call(input_fn, mode=mode, params=params, config=self.config)

    def _call_model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> Any:
        kept, self._params = self._params, self._params_for(mode)
        try:
            return super()._call_model_fn(features, labels, mode, config)
        finally:
            self._params = kept

    def _params_for(self, mode: str) -> Any:
        params, size = self.params, self._batch_sizes[mode]
        if size is None or self._is_exporting:
            return params
        if hasattr(params, "add_hparam"):
            params.add_hparam("batch_size", size)
        else:
            params["batch_size"] = size
        return params

    def _as_spec(self, spec: Any) -> EstimatorSpec:
        if isinstance(spec, TPUEstimatorSpec):
            spec = spec.as_estimator_spec()
        return super()._as_spec(spec)


class CrossShardOptimizer(tf.train.Optimizer):  # type: ignore[misc]
    """Passes all calls to the inner optimizer: with one shard no gradients need to be summed."""

    def __init__(
        self,
        opt: Any,
        reduction: Any = None,
        name: str = "CrossShardOptimizer",
        group_assignment: Any = None,
    ) -> None:
        super().__init__(False, name)
        self._opt = opt

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Call the inner optimizer."""
        return self._opt.compute_gradients(*args, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
    ) -> Any:
        """Call the inner optimizer."""
        return self._opt.apply_gradients(grads_and_vars, global_step, name)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """Call the inner optimizer."""
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self) -> Any:
        """Call the inner optimizer."""
        return self._opt.get_slot_names()

    def variables(self) -> Any:
        """Call the inner optimizer."""
        return self._opt.variables()


class TPUClusterResolver:
    """A stand-in for the TPU that a program names, without a cluster."""

    def __init__(self, tpu: Any = None, *args: Any, **kwargs: Any) -> None:
        self._tpu = tpu

    def master(self, *args: Any, **kwargs: Any) -> str:
        """Return the target that means this process."""
        return ""

    def get_master(self) -> str:
        """Return the target that means this process."""
        return ""

    def cluster_spec(self) -> Any:
        """Return a cluster without any machine."""
        return tf.train.ClusterSpec({})

    def get_job_name(self) -> str:
        """Return the name of the only job."""
        return "worker"


def bfloat16_scope() -> Any:
    """Return the scope in which a TPU model in half precision is built."""
    return tf.tpu.bfloat16_scope()
