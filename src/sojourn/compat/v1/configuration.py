"""The configuration of a session that was given none."""

from __future__ import annotations

import glob
from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.eager import context

_GPU_DEVICES = ("/dev/nvidia[0-9]*", "/dev/kfd", "/dev/dxg")


def default_config() -> Any:
    """What `tf.config` says, without waking a GPU that this process has not touched yet."""
    settings = context.context()
    if settings._physical_devices is not None or not any(map(glob.glob, _GPU_DEVICES)):
        return settings.config
    # Asking would list the devices, and that takes memory on each of them. Nothing about devices
    # can have been configured before they were listed, so only the rest is copied.
    config = config_pb2.ConfigProto()
    soft = settings._soft_device_placement
    config.allow_soft_placement = settings.executing_eagerly() if soft is None else soft
    if settings._log_device_placement is not None:
        config.log_device_placement = settings._log_device_placement
    if settings._intra_op_parallelism_threads is not None:
        config.intra_op_parallelism_threads = settings._intra_op_parallelism_threads
    if settings._inter_op_parallelism_threads is not None:
        config.inter_op_parallelism_threads = settings._inter_op_parallelism_threads
    return config
