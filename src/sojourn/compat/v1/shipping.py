"""The part of a graph that a worker does not have yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tensorflow.core.framework import graph_pb2

_PYTHON_OPS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})


@dataclass(frozen=True, slots=True)
class Difference:
    """New nodes and functions, and the version of the graph that contains them."""

    graph_def: bytes
    version: int
    operations: int
    library: frozenset[str]
    functions: set[str]  # tokens of the Python functions in `graph_def`


class Shipment:
    """Records how much of the graph has been sent. Not thread-safe."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self.version = 0
        self._operations = 0
        self._library: set[str] = set()

    def difference(self) -> Difference | None:
        """Return what was added to the graph since the last `arrived`, None if nothing was."""
        graph = self._graph
        # Keeps out threads that are adding an op, as TensorFlow's own sessions do.
        with graph._session_run_lock():
            version = graph.version
            if version == self.version:
                return None
            operations = graph.get_operations()
            library = dict(graph._functions)
            if self._operations == 0:
                graph_def, _ = graph._as_graph_def()
            else:
                graph_def = graph_pb2.GraphDef(versions=graph.graph_def_versions)
                graph_def.node.extend(op.node_def for op in operations[self._operations :])
                self._add_functions(graph_def, library)
        tokens = {
            node.attr["token"].s.decode()
            for nodes in (graph_def.node, *(f.node_def for f in graph_def.library.function))
            for node in nodes
            if node.op in _PYTHON_OPS
        }
        return Difference(
            graph_def.SerializeToString(), version, len(operations), frozenset(library), tokens
        )

    def _add_functions(self, graph_def: Any, library: dict[str, Any]) -> None:
        for name, function in library.items():
            if name not in self._library:
                graph_def.library.function.append(function.cached_definition)
                gradient = getattr(function, "grad_func_name", None)
                if gradient:
                    graph_def.library.gradient.add(function_name=name, gradient_func=gradient)

    def arrived(self, difference: Difference) -> None:
        """Record that the worker has this difference."""
        self.version = difference.version
        self._operations = difference.operations
        self._library |= difference.library
