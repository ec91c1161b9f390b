"""The graph of a drop-in session, rebuilt in the worker from the additions that the caller sends.

Only the C graph is built: the Python objects of its ops stay with the caller. The first part is
imported as a whole. Later ones are added op by op, because TensorFlow's importer refuses an op `x`
if an `x/...` exists, which is common in a growing graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tensorflow.core.framework import graph_pb2
from tensorflow.python.client import pywrap_tf_session as c_api
from tensorflow.python.framework import ops

_LOOPS_BACK = frozenset({"NextIteration", "RefNextIteration"})
_MERGES = frozenset({"Merge", "RefMerge"})


class GrowingGraph:
    """A C graph and its ops by name."""

    def __init__(self) -> None:
        self._graph = ops.Graph()
        self._ops: dict[str, Any] = {}

    @property
    def c_graph(self) -> Any:
        """A context manager that yields the C graph."""
        return self._graph._c_graph.get()

    def operation(self, name: str) -> Any:
        """Return the C operation of this name."""
        return self._ops[name]

    def output(self, name: str) -> Any:
        """Return the C output for a tensor's name, such as `"x:0"`."""
        operation, _, index = name.rpartition(":")
        return _output(self._ops[operation], int(index))

    def extend(self, graph_def: Any) -> None:
        """Add the ops of `graph_def` that the graph does not have yet.

        The caller sends ops again if TensorFlow refused them, or if the caller was interrupted.
        """
        if self._ops:
            self._import(graph_pb2.GraphDef(library=graph_def.library, versions=graph_def.versions))
            self._add([node for node in graph_def.node if node.name not in self._ops])
        else:
            self._import(graph_def)
            for operation in self._graph.new_operations():
                self._ops[c_api.TF_OperationName(operation)] = operation

    def _import(self, graph_def: Any) -> None:
        options = c_api.TF_NewImportGraphDefOptions()
        buffer = c_api.TF_NewBufferFromString(graph_def.SerializeToString())
        try:
            c_api.TF_ImportGraphDefOptionsSetPrefix(options, "")
            c_api.TF_ImportGraphDefOptionsSetUniquifyNames(options, 0)
            c_api.TF_ImportGraphDefOptionsSetValidateColocationConstraints(options, 0)
            with self.c_graph as c_graph:
                results = c_api.TF_GraphImportGraphDefWithResults(c_graph, buffer, options)
            c_api.TF_DeleteImportGraphDefResults(results)
        finally:
            c_api.TF_DeleteBuffer(buffer)
            c_api.TF_DeleteImportGraphDefOptions(options)

    def _add(self, nodes: list[Any]) -> None:
        back_edges: list[tuple[str, int, str]] = []
        for node in _inputs_first(nodes):
            inputs, controls = [], []
            for position, name in enumerate(node.input):
                if name.startswith("^"):
                    controls.append(self._ops[name[1:]])
                    continue
                operation, index = _parsed(name)
                if operation not in self._ops and node.op in _MERGES:
                    # A loop's NextIteration does not exist yet. Connect its Enter twice for now.
                    back_edges.append((node.name, position, name))
                    operation, index = _parsed(node.input[0])
                inputs.append(_output(self._ops[operation], index))
            self._ops[node.name] = self._create(node, inputs, controls)
        for merge, position, name in back_edges:
            there = c_api.TF_Input()
            there.oper, there.index = self._ops[merge], position
            operation, index = _parsed(name)
            with self.c_graph as c_graph:
                c_api.UpdateEdge(c_graph, _output(self._ops[operation], index), there)

    def _create(self, node: Any, inputs: list[Any], controls: list[Any]) -> Any:
        op_def = self._graph.op_def_for_type(node.op)
        with self.c_graph as c_graph:
            description = c_api.TF_NewOperation(c_graph, node.op, node.name)
        if node.device:
            c_api.TF_SetDevice(description, node.device)
        for given in ops._reconstruct_sequence_inputs(op_def, inputs, node.attr):
            if isinstance(given, list):
                c_api.TF_AddInputList(description, given)
            else:
                c_api.TF_AddInput(description, given)
        for control in controls:
            c_api.TF_AddControlInput(description, control)
        for name, value in node.attr.items():
            c_api.TF_SetAttrValueProto(description, name, value.SerializeToString())
        return c_api.TF_FinishOperation(description)


def _inputs_first(nodes: Any) -> Iterator[Any]:
    """Yield the nodes so that each follows its inputs, except for the back edges of loops."""
    by_name = {node.name: node for node in nodes}
    done: set[str] = set()
    for first in nodes:
        stack = [first]
        while stack:
            node = stack[-1]
            if node.name in done:
                stack.pop()
                continue
            waiting = []
            for name in node.input:
                needed = by_name.get(name[1:] if name.startswith("^") else _parsed(name)[0])
                if needed is None or needed.name in done:
                    continue
                if node.op in _MERGES and needed.op in _LOOPS_BACK:
                    continue
                waiting.append(needed)
            if waiting:
                stack += waiting
            else:
                done.add(node.name)
                stack.pop()
                yield node


def _parsed(name: str) -> tuple[str, int]:
    operation, colon, index = name.rpartition(":")
    return (operation, int(index)) if colon else (name, 0)


def _output(operation: Any, index: int) -> Any:
    output = c_api.TF_Output()
    output.oper, output.index = operation, index
    return output
