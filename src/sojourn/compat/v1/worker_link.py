"""The link of an isolated session: sends the graph to its worker, which does everything else."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from tensorflow.python.client import session as tf_session
from tensorflow.python.framework import errors_impl as tf_errors

from sojourn.compat.v1.functions import FunctionCalls
from sojourn.compat.v1.link import CLOSE_SECONDS, Link, devices_for
from sojourn.compat.v1.names import operation_names, tensor_names
from sojourn.compat.v1.shipping import Shipment
from sojourn.engines.remote_session import HANDLE, is_handle
from sojourn.kinds import Load
from sojourn.process.surroundings import way_into
from sojourn.session.backend import Backend
from sojourn.values import Place, arguments


class WorkerLink(Link):
    """The link to a C session in a worker, which has a copy of the graph."""

    gives_scalars = False

    def __init__(
        self,
        name: str,
        place: Place,
        graph: Any,
        config: Any,
        memory: int | str | None,
    ) -> None:
        super().__init__(graph, prepares_steps=True)
        self._shipment = Shipment(graph)
        self._ship_lock = threading.Lock()
        self._functions: FunctionCalls | None = None
        self._dead_callables: list[int] = []
        self._folder: bytes | None = None
        limit = None if memory is None else arguments.memory("memory", memory)
        choice = devices_for(config)

        def make(deadline: float | None) -> Backend:
            from sojourn.session.isolation import WorkerBackend

            return WorkerBackend(name, memory_bytes=limit, on_gpu=choice.on_gpu, deadline=deadline)

        load = Load(kind="session", config=config.SerializeToString())
        self._open(name, "process", place, make, load, choice.label)

    def grow(self) -> None:
        self._follow()
        if self.graph.version != self._shipment.version:
            self.ship()

    def _follow(self) -> None:
        """Move the worker to the caller's current directory, so that relative paths agree."""
        try:
            folder = os.getcwdb()  # the name may not be valid text
        except OSError:
            return  # the directory has been removed
        if folder != self._folder:
            self._call("chdir", {"folder": way_into(folder)})
            self._folder = folder

    def ship(self) -> None:
        """Send the worker the part of the graph that it does not have yet."""
        self._follow()
        with self._ship_lock:
            difference = self._shipment.difference()
            if difference is None:
                return
            if difference.functions:
                self._answer_for(difference.functions)
            self._call("extend", {}, [np.frombuffer(difference.graph_def, np.uint8)])
            self._shipment.arrived(difference)

    def _answer_for(self, tokens: set[str]) -> None:
        if self._functions is None:
            functions = FunctionCalls()
            with self.stay.taking_part("answer"):
                self.stay.backend.answer_with(functions.answer)  # type: ignore[union-attr]
            self._functions = functions
        self._functions.tokens |= tokens

    def step(
        self,
        feeds: tuple[str, ...],
        fetches: tuple[str, ...],
        targets: tuple[str, ...],
        arrays: Sequence[Any],
    ) -> list[Any]:
        checked = [sendable(array) for array in arrays]
        return [r if r.ndim else r[()] for r in super().step(feeds, fetches, targets, checked)]

    def extend(self, session: Any) -> None:
        self.ship()

    def run_with_options(
        self, session: Any, fetches: Any, feed_dict: Any, options: Any, metadata: Any
    ) -> Any:
        recorded: list[bytes] | None = None if metadata is None else []
        given = None if options is None else options.SerializeToString()
        result = session._run(None, fetches, feed_dict, given, recorded)
        if recorded:
            metadata.ParseFromString(recorded[0])
        return result

    def run_unprepared(
        self, session: Any, options: Any, feeds: Any, fetches: Any, targets: Any, metadata: Any
    ) -> Any:
        resources, sent = _without_resources(list(feeds.values()))
        facts, results = self._call(
            "run",
            {
                "feeds": tensor_names(feeds),
                "fetches": tensor_names(fetches),
                "targets": operation_names(targets),
                "options": options,
                "metadata": metadata is not None,
                "resources": resources,
            },
            sent,
            counts=True,
        )
        if metadata is not None:
            metadata.append(facts["metadata"])
        return _received(results, facts["resources"])

    def setup_partial(self, session: Any, setup: Any, arguments: Any) -> Any:
        _, feeds, fetches, targets = arguments
        self.ship()
        names = {
            "feeds": tensor_names(feeds),
            "fetches": tensor_names(fetches),
            "targets": operation_names(targets),
        }
        return str(self._call("partial_setup", names)[0])

    def run_partial(self, session: Any, handle: Any, feeds: Any, fetches: Any) -> Any:
        self.ship()  # TensorFlow checks later whether the handle is older than an op
        resources, sent = _without_resources(list(feeds.values()))
        facts, results = self._call(
            "partial_run",
            {
                "handle": handle,
                "feeds": tensor_names(feeds),
                "fetches": tensor_names(fetches),
                "resources": resources,
            },
            sent,
            counts=True,
        )
        return _received(results, facts["resources"])

    def make_callable(
        self, session: Any, fetches: Any, feed_list: Any, accept_options: bool
    ) -> Any:
        if feed_list is not None or not accept_options:
            return tf_session.BaseSession.make_callable(session, fetches, feed_list, accept_options)
        # TensorFlow's own callable would pass C buffers that only a C session can fill.
        self.ship()
        tf_session._FetchHandler(self.graph, fetches, {})

        def with_options(options: Any = None, run_metadata: Any = None) -> Any:
            return session.run(fetches, options=options, run_metadata=run_metadata)

        return with_options

    def callable_from_options(self, session: Any, options: Any) -> Any:
        self.ship()
        return RemoteCallable(self, options)

    def list_devices(self, session: Any) -> Any:
        return [tf_session._DeviceAttributes(*device) for device in session._do_call(self._devices)]

    def new_callable(self, options: bytes) -> int:
        """Make a callable in the worker, and return its number."""
        while self._dead_callables:
            self._call("release_callable", {"number": self._dead_callables.pop()})
        return int(self._call("make_callable", {"options": options})[0])

    def forget_callable(self, number: int) -> None:
        """Queue a callable for release by the next `new_callable`; safe inside the collector."""
        self._dead_callables.append(number)

    def call_callable(
        self, number: int, arrays: list[np.ndarray], metadata: bool
    ) -> tuple[bytes, list[Any]]:
        """Run a callable; return its metadata and its results."""
        facts, results = self._call(
            "call_callable",
            {"number": number, "metadata": metadata},
            [sendable(array) for array in arrays],
            counts=True,
        )
        return facts["metadata"], _received(results, facts["resources"])

    def _devices(self) -> list[tuple[str, str, int, int]]:
        listed: list[tuple[str, str, int, int]] = self._call("devices", {})[0]
        return listed

    def cancel(self) -> None:
        deadline = time.monotonic() + CLOSE_SECONDS
        try:
            with self.stay.taking_part("cancel"):
                self.stay.backend.call("cancel", {}, deadline=deadline)  # type: ignore[union-attr]
        except Exception:
            pass  # the worker is ending, has died or hangs: the end of the stay ends its steps


def sendable(value: Any) -> np.ndarray:
    """Return the value as an array that can be sent, or raise TensorFlow's error for it."""
    array: np.ndarray = np.asarray(value)
    if array.dtype.kind == "O":
        for item in array.reshape(-1).tolist():
            if not isinstance(item, str | bytes):
                raise tf_errors.InternalError(
                    None, None, f"Unsupported object type {type(item).__name__}"
                )
    return array


def _without_resources(arrays: Sequence[Any]) -> tuple[list[int], list[np.ndarray]]:
    """Return the positions of resource handles, and all arrays in a form that can be sent."""
    checked = [sendable(array) for array in arrays]
    resources = [i for i, array in enumerate(checked) if is_handle(array)]
    for i in resources:
        checked[i] = checked[i].view(np.uint8)
    return resources, checked


def _received(results: Sequence[np.ndarray], resources: list[int]) -> list[Any]:
    values: list[Any] = [r if r.ndim else r[()] for r in results]
    for i in resources:
        values[i] = values[i].view(HANDLE)
    return values


class RemoteCallable:
    """A TensorFlow callable made from `CallableOptions` and kept in the worker.

    Calling it runs one prepared step; the arguments are the feeds in order.
    """

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
