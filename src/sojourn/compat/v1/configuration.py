"""The configuration of a session that is opened without one."""

from __future__ import annotations

import glob
from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.eager import context

_GPU_DEVICES = ("/dev/nvidia[0-9]*", "/dev/kfd", "/dev/dxg")


def default_config() -> Any:
    """Return the settings of `tf.config`, without initialising a GPU that is not in use yet."""
    settings = context.context()
    if settings._physical_devices is not None or not any(map(glob.glob, _GPU_DEVICES)):
        return settings.config
    # `settings.config` would list the devices, which allocates memory on each of them. Device
    # settings can only be made after the devices were listed, so only the other settings are
    # copied.
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
