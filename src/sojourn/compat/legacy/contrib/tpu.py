"""`tf.contrib.tpu`, on the processors that are here."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy import removed
from sojourn.compat.legacy.estimator.tpu import (
    CrossShardOptimizer,
    InputPipelineConfig,
    RunConfig,
    TPUConfig,
    TPUEstimator,
    TPUEstimatorSpec,
    bfloat16_scope,
)


def cross_replica_sum(x: Any, *args: Any, **kwargs: Any) -> Any:
    """`x`: there is one replica."""
    return tf.identity(x)


__all__ = [
    "CrossShardOptimizer",
    "InputPipelineConfig",
    "RunConfig",
    "TPUConfig",
    "TPUEstimator",
    "TPUEstimatorSpec",
    "bfloat16_scope",
    "cross_replica_sum",
]
__getattr__ = removed.missing_name("tf.contrib.tpu")
