"""The engine behind a drop-in `tf.compat.v1.Session`: one C session on a graph that grows.

In a worker it owns the graph, rebuilt from the additions that the caller sends. Inline it uses the
caller's own C session, and only prepares and runs steps.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import pywrap_tf_session as c_api
from tensorflow.python.client import session as tf_session

from sojourn.engines.base import Arrays, CallBack, Operation
from sojourn.engines.remote_session_graph import GrowingGraph
from sojourn.engines.remote_session_steps import SessionStep
from sojourn.kinds import Load
from sojourn.values import Signature

# The numpy dtype of a resource: the bytes of its handle.
HANDLE = np.dtype([("resource", np.uint8, (1,))])


class CSession:
    """TensorFlow's C session. It is deleted when it is garbage-collected."""

    def __init__(self, c_session: Any) -> None:
        # TensorFlow's own callables use these attribute names.
        self._session = c_session
        self._closed = False

    @classmethod
    def on(cls, graph: GrowingGraph, config: bytes) -> CSession:
        """Make a session on a graph."""
        options = c_api.TF_NewSessionOptions(config=config_pb2.ConfigProto.FromString(config))
        try:
            with graph.c_graph as c_graph:
                return cls(c_api.TF_NewSessionRef(c_graph, options))
        finally:
            c_api.TF_DeleteSessionOptions(options)

    def _make_callable_from_options(self, options: Any) -> Any:
        return tf_session.BaseSession._Callable(self, options)

    def close(self) -> None:
        """Cancel running steps and refuse new ones."""
        if not self._closed:
            self._closed = True
            c_api.TF_CloseSession(self._session)

    def __del__(self) -> None:
        self.close()
        c_api.TF_DeleteSession(self._session)


class SessionEngine:
    """Runs the operations of a drop-in session."""

    def __init__(self, session: CSession, graph: GrowingGraph | None) -> None:
        self.signature = Signature()
        self._session = session
        self._maybe_graph = graph
        self._lock = threading.Lock()
        # A compiled step is shared for as long as it is in use.
        self._prepared: WeakValueDictionary[Any, SessionStep] = WeakValueDictionary()
        self._callables: dict[int, Any] = {}
        self._made = 0
        self._functions: Any = None  # the RemoteFunctions that call the graph's Python functions

    @classmethod
    def load(cls, load: Load, arrays: Arrays) -> SessionEngine:
        if load.live is not None:
            return cls(load.live, None)
        from sojourn.engines import remote_session_functions

        graph = GrowingGraph()
        engine = cls(CSession.on(graph, load.config), graph)
        engine._functions = remote_session_functions.take_over()
        return engine

    def plan(
        self,
        feeds: Sequence[str],
        fetches: Sequence[str],
        targets: Sequence[str] = (),
        tries_calling_thread: bool = False,
    ) -> SessionStep:
        """Prepare a step by the names of its tensors and, as targets, of its operations."""
        names = (list(feeds), list(fetches), list(targets))
        key = (tuple(feeds), tuple(fetches), tuple(targets))
        step = self._prepared.get(key)
        if step is None:
            crosses = self._maybe_graph is not None
            step = self._prepared[key] = SessionStep.make(self._session, *names, crosses)
        return step.tuned(self._session, *names) if tries_calling_thread else step

    def operations(self) -> dict[str, Operation]:
        return {
            "extend": self._extend,
            "run": self._run,
            "partial_setup": self._partial_setup,
            "partial_run": self._partial_run,
            "make_callable": self._make_callable,
            "call_callable": self._call_callable,
            "release_callable": self._release_callable,
            "devices": self._devices,
            "cancel": self._cancel,
            "chdir": self._chdir,
        }

    def connect(self, call_back: CallBack) -> None:
        """Set the callback that reaches the graph's Python functions in the caller's process."""
        self._functions.connect(call_back)

    def close(self) -> None:
        self._session.close()

    @property
    def _graph(self) -> GrowingGraph:
        assert self._maybe_graph is not None
        return self._maybe_graph

    def _extend(self, arguments: dict[str, Any], arrays: Arrays) -> tuple[Any, Arrays]:
        graph_def = graph_pb2.GraphDef()
        graph_def.ParseFromString(arrays[0].tobytes())
        with self._lock:
            self._graph.extend(graph_def)
            c_api.ExtendSession(self._session._session)
        return None, ()

    def _run(self, arguments: dict[str, Any], arrays: Arrays) -> tuple[Any, Arrays]:
        """Run a step with all options that TensorFlow's own `run` takes."""
        with_metadata = arguments["metadata"]
        options = _buffer(arguments["options"])
        metadata = c_api.TF_NewBuffer() if with_metadata else None
        try:
            results = c_api.TF_SessionRun_wrapper(
                self._session._session,
                options,
                self._fed(arguments, arrays),
                [self._graph.output(name) for name in arguments["fetches"]],
                [self._graph.operation(name) for name in arguments["targets"]],
                metadata,
            )
            content = c_api.TF_GetBuffer(metadata) if with_metadata else b""
        finally:
            for buffer in (options, metadata):
                if buffer is not None:
                    c_api.TF_DeleteBuffer(buffer)
        return _sendable(results, content)

    def _partial_setup(self, arguments: dict[str, Any], arrays: Arrays) -> tuple[Any, Arrays]:
        handle = c_api.TF_SessionPRunSetup_wrapper(
            self._session._session,
            [self._graph.output(name) for name in arguments["feeds"]],
            [self._graph.output(name) for name in arguments["fetches"]],
            [self._graph.operation(name) for name in arguments["targets"]],
        )
        return handle, ()

    def _partial_run(self, arguments: dict[str, Any], arrays: Arrays) -> tuple[Any, Arrays]:
        results = c_api.TF_SessionPRun_wrapper(
            self._session._session,
            arguments["handle"],
            self._fed(arguments, arrays),
            [self._graph.output(name) for name in arguments["fetches"]],
        )
        return _sendable(results)

    def _make_callable(self, arguments: dict[str, Any], arrays: Arrays) -> tuple[Any, Arrays]:
        options = config_pb2.CallableOptions.FromString(arguments["options"])
        made = self._session._make_callable_from_options(options)
        with self._lock:
            self._made += 1
            self._callables[self._made] = made
            return self._made, ()

    def _call_callable(self, arguments: dict[str, Any], arrays: Arrays) -> tuple[Any, Arrays]:
        metadata = config_pb2.RunMetadata() if arguments["metadata"] else None
        results = self._callables[arguments["number"]](*arrays, run_metadata=metadata)
        return _sendable(results, b"" if metadata is None else metadata.SerializeToString())

    def _release_callable(self, arguments: dict[str, Any], arrays: Arrays) -> tuple[Any, Arrays]:
        self._callables.pop(arguments["number"], None)
        return None, ()

    def _devices(self, arguments: dict[str, Any], arrays: Arrays) -> tuple[Any, Arrays]:
        listed = c_api.TF_SessionListDevices(self._session._session)
        try:
            return [
                (
                    c_api.TF_DeviceListName(listed, i),
                    c_api.TF_DeviceListType(listed, i),
                    c_api.TF_DeviceListMemoryBytes(listed, i),
                    c_api.TF_DeviceListIncarnation(listed, i),
                )
                for i in range(c_api.TF_DeviceListCount(listed))
            ], ()
        finally:
            c_api.TF_DeleteDeviceList(listed)

    def _cancel(self, arguments: dict[str, Any], arrays: Arrays) -> tuple[Any, Arrays]:
        self._session.close()
        return None, ()

    def _chdir(self, arguments: dict[str, Any], arrays: Arrays) -> tuple[Any, Arrays]:
        os.chdir(arguments["folder"])
        return None, ()

    def _fed(self, arguments: dict[str, Any], arrays: Arrays) -> dict[Any, np.ndarray]:
        fed = {}
        for i, (name, array) in enumerate(zip(arguments["feeds"], arrays, strict=True)):
            # The memory belongs to the transport, and the next message overwrites it.
            array = array.copy()
            fed[self._graph.output(name)] = (
                array.view(HANDLE) if i in arguments.get("resources", ()) else array
            )
        return fed


def is_handle(array: np.ndarray) -> bool:
    """Whether the array is the handle of a resource."""
    return array.dtype.names == ("resource",)


def _buffer(content: bytes | None) -> Any:
    return None if content is None else c_api.TF_NewBufferFromString(content)


def _sendable(results: Sequence[Any], metadata: bytes = b"") -> tuple[Any, list[np.ndarray]]:
    """Return results in a form that can be sent: resource handles as bytes, and their indices."""
    arrays = [r if hasattr(r, "dtype") else np.array(r, dtype=object) for r in results]
    resources = [i for i, array in enumerate(arrays) if is_handle(array)]
    for i in resources:
        arrays[i] = arrays[i].view(np.uint8)
    return {"metadata": metadata, "resources": resources}, [np.asarray(a) for a in arrays]
