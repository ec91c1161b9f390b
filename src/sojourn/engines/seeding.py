"""What is set in the process of an engine before it loads: seeds, determinism, device limits.

With a seed, the same work gives the same bits. A worker holds one session, so global seeds are its
own affair. In the caller's process (an inline session) they are the caller's as well; that is the
price of being inline.
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

# Random ops that keep their own stream: without seeds in the graph each starts anywhere.
_SEEDED = ("seed", "seed2")
_NUMBERED = re.compile(r"(.*)_(\d+)")


def prepare(load: Load) -> None:
    """Seed this process and ask for deterministic ops, as `seed` and `deterministic` say; tell
    TensorFlow how many threads it has.

    Called before the model is loaded or built.
    """
    seed = load.seed
    if seed is not None:
        seed_process(seed)
    if load.deterministic and "tensorflow" in sys.modules:
        sys.modules["tensorflow"].config.experimental.enable_op_determinism()
    is_its_engine = KINDS[load.kind].framework == "tensorflow" and "tensorflow" in sys.modules
    if load.threads is not None and is_its_engine:  # another in the same worker has its own
        # A builder may compute before there is a session, which would come too late.
        threading = sys.modules["tensorflow"].config.threading
        threading.set_intra_op_parallelism_threads(load.threads)
        threading.set_inter_op_parallelism_threads(load.threads)
    limit = load.gpu_bytes
    if limit is not None:
        _cap_devices(limit)
    if load.device.lower().startswith("gpu"):
        _require_gpu(load.device)


def seed_process(seed: int) -> None:
    """Seed Python, numpy, and TensorFlow and Keras where they are loaded."""
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
    """Give a seed to every random op of a finished graph that was built without one.

    Each gets one of its own, made from the op's name: two dropouts must not drop alike.
    """
    for node in graph_def.node:
        _seed_node(node, "", seed)
    functions = {function.signature.name: function for function in graph_def.library.function}
    alike: Counter[str] = Counter()
    for name in sorted(functions, key=_by_number):
        # TensorFlow numbers functions by all that the process has made before, which is none of
        # the model's business: only their order counts.
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
    """Raise if a GPU was asked for by name and TensorFlow cannot use it."""
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
    """Let eager TensorFlow take this much of each GPU it sees, and no more."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return
    config = tensorflow.config
    for gpu in config.list_physical_devices("GPU"):
        megabytes = max(1, limit_bytes // 2**20)
        logical = config.LogicalDeviceConfiguration(memory_limit=megabytes)
        config.set_logical_device_configuration(gpu, [logical])
