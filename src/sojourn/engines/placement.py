"""Where the ops of a session really ran, as TensorFlow tells after a step.

With a single device there is nothing to ask. With several, the first run of each step goes through
a callable of its own that brings back the graph as it was cut up and placed.
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
    """Counts ops by device, over the steps of one session that have run."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        # A local session; XLA's twin of a device is no place of its own.
        names = [device.name for device in session.list_devices() if "XLA" not in device.name]
        self._devices = [short_name(name) for name in names]

    @property
    def is_certain(self) -> bool:
        """Whether there is only one place where ops can run."""
        return len(self._devices) == 1

    def counts(self) -> dict[str, int]:
        """How many ops ran on each device; every device of the session is there."""
        with self._lock:
            return {device: self._counts[device] for device in self._devices}

    def watch(self, step: CompiledStep, ops: int) -> None:
        """See where the ops of a new step run."""
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
    """`"GPU:0"` of `"/job:localhost/replica:0/task:0/device:GPU:0"`."""
    return device.rpartition("device:")[2] or device
