"""Find out on which devices the ops of a session really ran, from TensorFlow's step metadata.

With a single device the answer is known. With several, the first run of each step uses a separate
callable that also returns the graph as TensorFlow partitioned and placed it.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from tensorflow.core.protobuf import config_pb2

from sojourn.engines.base import Arrays

if TYPE_CHECKING:
    from sojourn.engines.tensorflow_steps import CompiledStep


class Placements:
    """Counts ops by device, over the steps that have run in one session."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        # The session is local. XLA's twin of a device does not count as another device.
        names = [device.name for device in session.list_devices() if "XLA" not in device.name]
        self._devices = [short_name(name) for name in names]

    @property
    def is_certain(self) -> bool:
        """Whether there is only one device where ops can run."""
        return len(self._devices) == 1

    def counts(self) -> dict[str, int]:
        """Return how many ops ran on each device, including devices without any."""
        with self._lock:
            return {device: self._counts[device] for device in self._devices}

    def watch(self, step: CompiledStep, ops: int) -> None:
        """Count where the ops of a new step run."""
        if self.is_certain:
            with self._lock:
                self._counts[self._devices[0]] += ops
            return
        step.run_first_by(self._first_run)

    def _first_run(self, feeds: list[str], fetches: list[str], targets: list[str]) -> Any:
        options = config_pb2.CallableOptions(feed=feeds, fetch=fetches, target=targets)
        options.run_options.output_partition_graphs = True
        call = self._session._make_callable_from_options(options)

        def run(arrays: Arrays) -> Any:
            metadata = config_pb2.RunMetadata()
            results = call(*arrays, run_metadata=metadata)
            with self._lock:
                for part in metadata.partition_graphs:
                    self._counts.update(
                        short_name(node.device) for node in part.node if node.device
                    )
            return results

        return run


def short_name(device: str) -> str:
    """Shorten `"/job:localhost/replica:0/task:0/device:GPU:0"` to `"GPU:0"`."""
    return device.rpartition("device:")[2] or device
