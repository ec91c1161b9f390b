"""`tf.contrib.tpu`, run on the local CPUs or GPUs."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy import removed
from sojourn.compat.legacy.estimator import tpu as _tpu
from sojourn.compat.legacy.namespaces import adopt

AsyncCheckpointSaverHook = tf.train.CheckpointSaverHook
initialize_system, shutdown_system = tf.tpu.initialize_system, tf.tpu.shutdown_system
outside_compilation = tf.tpu.outside_compilation


def cross_replica_sum(x: Any, *args: Any, **kwargs: Any) -> Any:
    """Return `x`: only one replica exists."""
    return tf.identity(x)


adopt(globals(), _tpu)
__getattr__ = removed.missing_name("tf.contrib.tpu")
