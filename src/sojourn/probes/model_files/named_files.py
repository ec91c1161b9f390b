"""Where an op that is given a file, a lookup table or a cache, gets the name of that file.

Honest models fill tables from assets, whose tensors TensorFlow feeds while it loads the model.
A constant, or anything else that is computed, can name any file. A cache with no name is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from sojourn.probes.model_files.graphs import Function, Graph, Node, node_name
from sojourn.probes.model_files.meta_graphs import MetaGraph
from sojourn.probes.model_files.wire import fields, message, text

TABLES_FROM_FILES = (b"InitializeTableFromTextFile", b"InitializeTableFromTextFileV2")
CACHES = (b"CacheDataset", b"CacheDatasetV2")
_CALLS = (b"PartitionedCall", b"StatefulPartitionedCall")
_PASSES_ON = (b"Identity", b"StopGradient")
_ASSIGN = b"AssignVariableOp"
_ONLY_LOOK = (b"ReadVariableOp", b"VarIsInitializedOp")
_MOST_STEPS = 1_000_000  # for all of them together: a hostile graph has no end of ways
_Place = tuple[Function | None, bytes]  # a tensor in a function, or in the graph itself


class NamedFiles:
    """Answers for the ops of one graph."""

    def __init__(self, meta: MetaGraph) -> None:
        self._graph = meta.graph
        self._assets = {node_name(tensor) for asset in meta.assets for tensor in asset.tensors}
        self._steps_left = _MOST_STEPS
        self._bodies: dict[int, dict[bytes, list[Node]]] = {}
        self._homes: dict[int, Function] = {}
        self._callers: dict[bytes, list[tuple[Function | None, Node]]] = {}
        self._names: dict[int, bytes] = {}
        self._handles: dict[bytes, list[tuple[Function | None, Node]]] = {}  # of each variable
        self._users: dict[bytes, list[Node]] = {}  # of each handle
        if any(node.op in TABLES_FROM_FILES + CACHES for node in meta.graph.every_node()):
            self._find_callers()
            self._find_variables()

    def _find_callers(self) -> None:
        for home, node in _every_node(self._graph):
            if home is not None:
                self._homes[id(node)] = home
            called = node.calls() if node.op in _CALLS else (node.op,)
            for name in set(called) & self._graph.functions.keys():
                self._callers.setdefault(name, []).append((home, node))
        for name, definitions in self._graph.functions.items():
            self._names.update({id(definition): name for definition in definitions})

    def _find_variables(self) -> None:
        for home, node in _every_node(self._graph):
            if node.op == b"VarHandleOp":
                self._handles.setdefault(_variable(node), []).append((home, node))
                self._users[node.name] = []
        for same_name in self._graph.nodes.values():
            for node in same_name:
                for source in {node_name(source) for source in node.inputs} & self._users.keys():
                    self._users[source].append(node)

    def not_assets(self, asking: Node) -> list[str]:
        """Which files it could be given that are no assets, as far as they are known; the empty
        name is one."""
        sources = [source for source in asking.inputs if not source.startswith(b"^")]
        if len(sources) < 2:
            return ["an unknown file"]
        pending: list[_Place] = [(self._homes.get(id(asking)), sources[1])]
        seen: set[tuple[int, bytes]] = set()
        found: dict[str, None] = {}
        while pending:
            home, source = pending.pop()
            name = node_name(source)
            if (id(home), name) in seen:
                continue
            seen.add((id(home), name))
            self._steps_left -= 1
            if self._steps_left < 0:
                return ["an unknown file"]
            if home is None and name in self._assets:
                continue
            if home is not None and name in home.arguments:
                pending += self._given(home, home.arguments[name])
                continue
            nodes = (self._graph.nodes if home is None else self._body(home)).get(name, [])
            for node in nodes:
                assigned = self._assigned(home, node)
                if node.op in _PASSES_ON and node.inputs:
                    pending.append((home, node.inputs[0]))
                elif assigned:
                    pending += assigned
                else:
                    name_given = _constant(node)
                    computed = "a file whose name is computed"
                    found[computed if name_given is None else name_given] = None
            if not nodes:
                found["an unknown file"] = None
        return list(found)

    def _given(self, function: Function, index: int) -> Iterator[_Place]:
        """What is passed as this argument, wherever the function is called.

        Nowhere is no reason for alarm: functions are kept also for those who call them by hand.
        """
        for home, caller in self._callers.get(self._names[id(function)], []):
            given = [source for source in caller.inputs if not source.startswith(b"^")]
            self._steps_left -= len(given)
            yield (home, given[index]) if index < len(given) else (home, b"")

    def _body(self, function: Function) -> dict[bytes, list[Node]]:
        if id(function) not in self._bodies:
            by_name = self._bodies.setdefault(id(function), {})
            for node in function.nodes:
                by_name.setdefault(node.name, []).append(node)
        return self._bodies[id(function)]

    def _assigned(self, home: Function | None, read: Node) -> list[_Place]:
        """What the variable that is read here gets, if all that can change it is plain to see.

        TensorFlow 2 puts the path of an asset into a variable first.
        """
        if read.op != b"ReadVariableOp" or home is not None or not read.inputs:
            return []
        found: list[_Place] = []
        for node in self._graph.nodes.get(node_name(read.inputs[0]), []):
            for place, handle in self._handles.get(_variable(node), []):
                users = self._users[handle.name] if place is None else []
                self._steps_left -= len(users)
                changes = [user for user in users if user.op not in _ONLY_LOOK]
                if place is not None or any(user.op != _ASSIGN for user in changes):
                    return []
                found += [(None, source) for user in changes for source in user.inputs[1:2]]
        return found


def _variable(handle: Node) -> bytes:
    """Two handles with the same shared name are the same variable."""
    shared = next((name for name in handle.texts("shared_name") if name), "")
    return shared.encode() or handle.name


def _every_node(graph: Graph) -> Iterator[tuple[Function | None, Node]]:
    for same_name in graph.nodes.values():
        yield from ((None, node) for node in same_name)
    for definitions in graph.functions.values():
        for function in definitions:
            yield from ((function, node) for node in function.nodes)


def _constant(node: Node) -> str | None:
    """The text that a constant holds; None if it is none, or not plain to see."""
    if node.op != b"Const":
        return None
    value = dict(node.attributes()).get(b"value", memoryview(b""))
    parts = [f for part, tensor in fields(value) if part == 8 for f in fields(message(tensor))]
    if any(part == 4 for part, _ in parts):
        return None  # packed in another way
    texts = [text(content)[:200] for part, content in parts if part == 8]
    return next((found for found in texts if found), "")
