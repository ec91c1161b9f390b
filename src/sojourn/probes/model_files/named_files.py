"""Where an op that is given a file, a table, a cache or a restore, gets the name of that file.

Honest models fill tables from assets, and variables from their checkpoint, whose tensors TensorFlow
feeds while it loads the model. A constant, or anything else that is computed, can name any file,
and so can what is not followed: the arguments of a branch, a loop or a dataset's function. A cache
with no name is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from sojourn.probes.model_files.graphs import Function, Graph, Node, node_name
from sojourn.probes.model_files.meta_graphs import MetaGraph
from sojourn.probes.model_files.wire import fields, message, text

TABLES_FROM_FILES = (b"InitializeTableFromTextFile", b"InitializeTableFromTextFileV2")
CACHES = (b"CacheDataset", b"CacheDatasetV2")
_CALLS = (b"PartitionedCall", b"StatefulPartitionedCall")
RESTORES = (b"Restore", b"RestoreSlice", b"RestoreV2", b"DTensorRestoreV2")
_ASKING = TABLES_FROM_FILES + CACHES + RESTORES
_PASSES_ON = (b"Identity", b"StopGradient")
_NAMES_PARTS = (b"ShardedFilename", b"ShardedFilespec")  # of a checkpoint
_UNKNOWN = "an unknown file"
_ASSIGN = b"AssignVariableOp"
_ONLY_LOOK = (b"ReadVariableOp", b"VarIsInitializedOp")
_MOST_STEPS = 1_000_000  # for all of them together: a hostile graph has no end of ways
_Place = tuple[Function | None, bytes]  # a tensor in a function, or in the graph itself


class NamedFiles:
    """Answers for the ops of one graph."""

    def __init__(self, meta: MetaGraph) -> None:
        self._graph = meta.graph
        self._assets = {_tensor(asset.tensor) for asset in meta.assets}
        self._checkpoint = {_tensor(meta.filename_tensor)}
        self._steps_left = _MOST_STEPS
        self._bodies: dict[int, dict[bytes, list[Node]]] = {}
        self._homes: dict[int, Function] = {}
        self._callers: dict[bytes, list[tuple[Function | None, Node]]] = {}
        # What is called by others than plain calls: what it is given is not followed.
        self._otherwise_called = set(meta.graph.substitutes)
        self._names: dict[int, bytes] = {}
        self._handles: dict[bytes, list[tuple[Function | None, Node]]] = {}  # of each variable
        self._users: dict[bytes, list[Node]] = {}  # of each handle
        self._has_hidden_handles = False
        if any(node.op in _ASKING for node in meta.graph.every_node()):
            self._find_callers()
            self._find_variables()

    def _find_callers(self) -> None:
        functions = self._graph.functions
        for home, node in _every_node(self._graph):
            if home is not None:
                self._homes[id(node)] = home
            called = {node.op} & functions.keys()
            for attribute, name in node.named_functions():
                if node.op in _CALLS and attribute == b"f":
                    called.add(name)
                else:
                    self._otherwise_called.add(name)
            for name in called:
                self._callers.setdefault(name, []).append((home, node))
        for name, definitions in functions.items():
            self._names.update({id(definition): name for definition in definitions})

    def _find_variables(self) -> None:
        for home, node in _every_node(self._graph):
            if node.op == b"VarHandleOp":
                self._handles.setdefault(_variable(node), []).append((home, node))
                self._users[node.name] = []
                self._has_hidden_handles |= node.has_placeholder("shared_name")
            self._has_hidden_handles |= node.op == b"_VarHandlesOp"
        for same_name in self._graph.nodes.values():
            for node in same_name:
                for source in {node_name(source) for source in node.inputs} & self._users.keys():
                    self._users[source].append(node)

    def not_assets(self, asking: Node) -> list[str]:
        """Which files it could be given that are no assets, as far as they are known; the empty
        name is one."""
        return self._not_fed(asking, 1, self._assets, _PASSES_ON)

    def not_checkpoint(self, asking: Node) -> list[str]:
        """Which files an op that restores could be given beside the checkpoint."""
        return self._not_fed(asking, 0, self._checkpoint, _PASSES_ON + _NAMES_PARTS)

    def _not_fed(
        self, asking: Node, place: int, fed: set[bytes], passes_on: tuple[bytes, ...]
    ) -> list[str]:
        """What the input in this place may be beside what is fed. Ops pass on their first input."""
        sources = [source for source in asking.inputs if not source.startswith(b"^")]
        if len(sources) <= place:
            return [_UNKNOWN]
        pending: list[_Place] = [(self._homes.get(id(asking)), sources[place])]
        seen: set[tuple[int, bytes]] = set()
        found: dict[str, None] = {}
        while pending:
            home, source = pending.pop()
            if (id(home), source) in seen:
                continue
            seen.add((id(home), source))
            self._steps_left -= 1
            if self._steps_left < 0:
                return [_UNKNOWN]
            name = node_name(source)
            if home is None and _tensor(source) in fed:
                continue
            if home is not None and name in home.arguments:
                if home.has_lists or self._names[id(home)] in self._otherwise_called:
                    found[_UNKNOWN] = None
                pending += self._given(home, home.arguments[name])
                continue
            nodes = (self._graph.nodes if home is None else self._body(home)).get(name, [])
            for node in nodes:
                assigned = self._assigned(home, node)
                if node.op in passes_on and node.inputs:
                    pending.append((home, node.inputs[0]))
                elif assigned:
                    pending += assigned
                else:
                    name_given = _constant(node)
                    computed = "a file whose name is computed"
                    found[computed if name_given is None else name_given] = None
            if not nodes:
                found[_UNKNOWN] = None
        return list(found)

    def _given(self, function: Function, index: int) -> Iterator[_Place]:
        """What is passed as this argument, wherever the function is plainly called.

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
        if self._has_hidden_handles:
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


def _tensor(reference: bytes) -> bytes:
    """A tensor of the graph itself, by one spelling: what is not numbered is the first output."""
    return reference if b":" in reference else reference + b":0"


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
    if any(part != 8 for part, _ in fields(value)):
        return None  # said where its function is called
    parts = [f for _, tensor in fields(value) for f in fields(message(tensor))]
    if any(part == 4 for part, _ in parts):
        return None  # packed in another way
    texts = [text(content)[:200] for part, content in parts if part == 8]
    return next((found for found in texts if found), "")
