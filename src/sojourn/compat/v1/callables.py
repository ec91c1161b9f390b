"""TensorFlow's experimental callables from `CallableOptions`, kept in the worker."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from sojourn.compat.v1.worker_link import WorkerLink


class RemoteCallable:
    """Runs one prepared step; the arguments are its feeds in order."""

    def __init__(self, link: WorkerLink, options: Any) -> None:
        self._link = link
        self._number = link.new_callable(options.SerializeToString())
        weakref.finalize(self, link.forget_callable, self._number)

    def __call__(self, *args: Any, run_metadata: Any = None) -> Any:
        arrays = [np.asarray(arg) for arg in args]
        metadata, results = self._link.call_callable(self._number, arrays, run_metadata is not None)
        if run_metadata is not None:
            run_metadata.ParseFromString(metadata)
        return results
