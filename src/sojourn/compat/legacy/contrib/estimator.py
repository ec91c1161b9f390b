"""`tf.contrib.estimator`: heads by their original names, and helpers for estimators."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy import removed
from sojourn.compat.legacy.estimator import (  # noqa: F401
    add_metrics,
    call_logit_fn,
    class_heads,
    dnn_logit_fn_builder,
    heads,
    linear_logit_fn_builder,
    stopping,
)
from sojourn.compat.legacy.estimator.canned import DNNEstimator, LinearEstimator  # noqa: F401
from sojourn.compat.legacy.estimator.combined import (  # noqa: F401
    BaselineEstimator,
    DNNLinearCombinedEstimator,
)
from sojourn.compat.legacy.estimator.estimator import Estimator
from sojourn.compat.legacy.estimator.tpu import CrossShardOptimizer
from sojourn.compat.legacy.namespaces import adopt

binary_classification_head = class_heads.BinaryClassHead
multi_class_head = class_heads.MultiClassHead
multi_label_head = class_heads.MultiLabelHead
# Wraps another optimizer for several devices; with one device it only calls the inner one.
TowerOptimizer = CrossShardOptimizer


def regression_head(weight_column: Any = None, label_dimension: int = 1, **rest: Any) -> Any:
    """Return a regression head; `tf.estimator` has its first two arguments in reverse order."""
    return heads.RegressionHead(label_dimension, weight_column, **rest)


def replicate_model_fn(model_fn: Any, loss_reduction: Any = None, devices: Any = None) -> Any:
    """Return `model_fn` unchanged: one device does all the work."""
    return model_fn


def clip_gradients_by_norm(optimizer: Any, clip_norm: float) -> Any:
    """Wrap the optimizer to clip its gradients to the global norm `clip_norm`."""

    class Clipped(CrossShardOptimizer):
        def apply_gradients(
            self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
        ) -> Any:
            gradients, variables = zip(*grads_and_vars, strict=True)
            clipped, _ = tf.clip_by_global_norm(gradients, clip_norm)
            pairs = list(zip(clipped, variables, strict=True))
            return super().apply_gradients(pairs, global_step, name)

    return Clipped(optimizer, name="ClipByNorm")


def forward_features(estimator: Any, keys: Any = None, **rest: Any) -> Any:
    """Return an estimator whose predictions also contain the features `keys`, by default all."""
    wanted = [keys] if isinstance(keys, str) else keys

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
        spec = estimator.model_fn(features, labels, mode, config)
        if not isinstance(spec.predictions, dict) or not spec.predictions:
            return spec
        more = {key: features[key] for key in (wanted or features)}
        outputs = spec.export_outputs
        for output in (outputs or {}).values():
            if hasattr(output, "outputs"):
                output.outputs.update(more)
        return spec._replace(predictions={**spec.predictions, **more}, export_outputs=outputs)

    return Estimator(model_fn, estimator.model_dir, estimator.config)


adopt(globals(), stopping)
__getattr__ = removed.missing_name("tf.contrib.estimator")
