"""Distribution strategies and cluster resolvers for programs that run on one machine.

An estimator runs one replica with any strategy; programs make these objects to configure it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy.estimator.tpu import TPUClusterResolver
from sojourn.compat.legacy.namespaces import Namespace


def _one_device() -> Any:
    return tf.distribute.OneDeviceStrategy("/cpu:0")


def MirroredStrategy(
    devices: Any = None,
    num_gpus: Any = None,
    num_gpus_per_worker: Any = None,
    cross_device_ops: Any = None,
    **rest: Any,
) -> Any:
    """Return a strategy with one replica on each GPU; without a GPU, one on the CPU."""
    present = [d.name for d in tf.config.list_logical_devices("GPU")]
    if not present:
        return _one_device()
    wanted = devices or present[: num_gpus or num_gpus_per_worker]
    return tf.distribute.MirroredStrategy(wanted, cross_device_ops)


def ParameterServerStrategy(*args: Any, **kwargs: Any) -> Any:
    """Return a strategy with one replica on the CPU: no cluster exists."""
    return _one_device()


CollectiveAllReduceStrategy = TPUStrategy = ParameterServerStrategy
AllReduceCrossTowerOps = AllReduceCrossDeviceOps = tf.distribute.HierarchicalCopyAllReduce


class DistributeConfig(NamedTuple):
    """The strategies of a run, stored only so that the program can read them."""

    train_distribute: Any = None
    eval_distribute: Any = None
    remote_cluster: Any = None


def namespace() -> Namespace:
    """Return the module `tf.distribute`. Its TPU resolver sends no network requests."""
    resolvers = Namespace(
        "tensorflow.distribute.cluster_resolver",
        (tf.distribute.cluster_resolver,),
        {"TPUClusterResolver": TPUClusterResolver},
    )
    return Namespace("tensorflow.distribute", (tf.distribute,), {"cluster_resolver": resolvers})
