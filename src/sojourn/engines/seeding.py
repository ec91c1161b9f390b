"""Set seeds, determinism and device limits in the process of an engine, before it loads.

With a seed, the same work gives the same bits. A worker holds one session, so that setting global
seeds affects nothing else. In an inline session they affect the caller's own code as well; that is
the price of being inline.
"""

from __future__ import annotations

import random
import re
import sys
import zlib
from collections import Counter
from typing import Any

import numpy as np

from sojourn.errors import DeviceError
from sojourn.kinds import KINDS, Load

# Attributes of random ops with a random stream of their own: without seeds, each starts anywhere.
_SEEDED = ("seed", "seed2")
_NUMBERED = re.compile(r"(.*)_(\d+)")


def prepare(load: Load) -> None:
    """Apply `seed`, `deterministic`, `threads`, `gpu_bytes` and `device` to this process.

    Called before the model is loaded or built.
    """
    seed = load.seed
    if seed is not None:
        seed_process(seed)
    if load.deterministic and "tensorflow" in sys.modules:
        sys.modules["tensorflow"].config.experimental.enable_op_determinism()
    is_its_engine = KINDS[load.kind].framework == "tensorflow" and "tensorflow" in sys.modules
    if load.threads is not None and is_its_engine:  # other engines limit their own threads
        # Not left to the session: a builder may compute before the session is made.
        threading = sys.modules["tensorflow"].config.threading
        threading.set_intra_op_parallelism_threads(load.threads)
        threading.set_inter_op_parallelism_threads(load.threads)
    limit = load.gpu_bytes
    if limit is not None:
        _cap_devices(limit)
    if load.device.lower().startswith("gpu"):
        _require_gpu(load.device)


def seed_process(seed: int) -> None:
    """Seed Python and numpy, and TensorFlow and Keras if they are loaded."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return
    tensorflow.random.set_seed(seed)
    keras = sys.modules.get("keras")
    if keras is not None:
        keras.utils.set_random_seed(seed % 2**32)


def seed_graph_def(graph_def: Any, seed: int) -> None:
    """Set a seed on every random op of a finished graph that was built without one.

    Each seed is made from the op's name, because two dropouts must not drop the same elements.
    """
    for node in graph_def.node:
        _seed_node(node, "", seed)
    functions = {function.signature.name: function for function in graph_def.library.function}
    alike: Counter[str] = Counter()
    for name in sorted(functions, key=_by_number):
        # The number in a function's name depends on all functions that the process made before.
        # It must not affect the seeds, so only the order of the functions counts.
        stem, _ = _by_number(name)
        for node in functions[name].node_def:
            _seed_node(node, f"{stem}#{alike[stem]}", seed)
        alike[stem] += 1


def _by_number(name: str) -> tuple[str, int]:
    found = _NUMBERED.fullmatch(name)
    return (name, 0) if found is None else (found[1], int(found[2]))


def _seed_node(node: Any, scope: str, seed: int) -> None:
    if not all(name in node.attr for name in _SEEDED):
        return
    if node.attr["seed"].i or node.attr["seed2"].i:
        return
    node.attr["seed"].i = seed % 2**31 or 87654321
    node.attr["seed2"].i = zlib.crc32(f"{scope}/{node.name}".encode()) % 2**31


def _require_gpu(device: str) -> None:
    """Raise DeviceError if TensorFlow cannot use a GPU that was requested by name."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return
    found = tensorflow.config.list_physical_devices()
    if not any(place.device_type == "GPU" for place in found):
        names = ", ".join(place.name.rpartition("device:")[2] for place in found)
        raise DeviceError(
            f"TensorFlow cannot use {device!r}: it sees {names or 'nothing'} (is it "
            "tensorflow-cpu, or is a CUDA library missing?)"
        )


def _cap_devices(limit_bytes: int) -> None:
    """Limit the memory that eager TensorFlow takes of each visible GPU."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return
    config = tensorflow.config
    for gpu in config.list_physical_devices("GPU"):
        megabytes = max(1, limit_bytes // 2**20)
        logical = config.LogicalDeviceConfiguration(memory_limit=megabytes)
        config.set_logical_device_configuration(gpu, [logical])
