"""Distribution strategies and cluster resolvers, for programs that find one machine.

An estimator runs one replica, whatever strategy it is given; these are what a program makes on
its way there.
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
    """One replica on each device that exists; without a GPU, one here."""
    present = [d.name for d in tf.config.list_logical_devices("GPU")]
    if not present:
        return _one_device()
    wanted = devices or present[: num_gpus or num_gpus_per_worker]
    return tf.distribute.MirroredStrategy(wanted, cross_device_ops)


def ParameterServerStrategy(*args: Any, **kwargs: Any) -> Any:
    """One replica here: there is no cluster."""
    return _one_device()


CollectiveAllReduceStrategy = TPUStrategy = ParameterServerStrategy
AllReduceCrossTowerOps = AllReduceCrossDeviceOps = tf.distribute.HierarchicalCopyAllReduce


class DistributeConfig(NamedTuple):
    """The strategies of a run. They are kept for the program to read."""

    train_distribute: Any = None
    eval_distribute: Any = None
    remote_cluster: Any = None


def namespace() -> Namespace:
    """What `tf.distribute` is: the resolver of TPUs asks no network for them."""
    resolvers = Namespace(
        "tensorflow.distribute.cluster_resolver",
        (tf.distribute.cluster_resolver,),
        {"TPUClusterResolver": TPUClusterResolver},
    )
    return Namespace("tensorflow.distribute", (tf.distribute,), {"cluster_resolver": resolvers})
