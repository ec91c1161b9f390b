"""Graphs out of their serialised form: nodes, functions, signatures, and what reaches what.

Knows the few fields of TensorFlow's messages that matter here, by number; skips the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sojourn.errors import ModelError
from sojourn.probes.model_files.wire import Value, entry, fields, message, number, text
from sojourn.values import Signature, TensorSpec

# DataType by its number; a reference type is 100 more.
# fmt: off
_DTYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string",
    8: "complex64", 9: "int64", 10: "bool", 11: "qint8", 12: "quint8", 13: "qint32",
    14: "bfloat16", 15: "qint16", 16: "quint16", 17: "uint16", 18: "complex128",
    19: "float16", 20: "resource", 21: "variant", 22: "uint32", 23: "uint64",
    24: "float8_e5m2", 25: "float8_e4m3fn", 29: "int4", 30: "uint4",
}
# fmt: on
_MOST_DIMENSIONS = 254  # TensorFlow's own limit
# Far above any model. Two bytes of a hostile file make a node, which takes hundreds here.
_MOST_NODES = 1_000_000
_MOST_GRAPHS = 64


@dataclass(slots=True)
class Node:
    """One op of a graph or function."""

    serialised: memoryview
    name: str = ""
    op: str = ""
    inputs: list[str] = field(default_factory=list)

    def attributes(self) -> Iterator[tuple[str, memoryview]]:
        """The names and the serialised values of its attributes."""
        return (entry(value) for part, value in fields(self.serialised) if part == 5)

    def texts(self, name: str) -> list[str]:
        """A text attribute, or a list of them."""
        found: list[str] = []
        for part, value in fields(dict(self.attributes()).get(name, memoryview(b""))):
            if part == 2:
                found.append(text(value))
            elif part == 1:
                found += [text(v) for p, v in fields(message(value)) if p == 2]
        return found

    def calls(self) -> Iterator[str]:
        """The functions that it calls: its op may be one, its attributes may name more."""
        yield self.op
        for _, attribute in self.attributes():
            for part, value in fields(attribute):
                if part == 10:
                    yield _function_name(value)
                elif part == 1:
                    for inner, listed in fields(message(value)):
                        if inner == 9:
                            yield _function_name(listed)


@dataclass(slots=True)
class Graph:
    """A graph and its library of functions."""

    nodes: dict[str, Node] = field(default_factory=dict)
    functions: dict[str, list[Node]] = field(default_factory=dict)

    def every_node(self) -> Iterator[Node]:
        """Those of the graph and those of every function."""
        yield from self.nodes.values()
        for body in self.functions.values():
            yield from body

    def reachable(self, roots: Iterable[str]) -> list[Node]:
        """What runs when these nodes (or tensors) are asked for, inside functions too."""
        pending = [_node_name(root) for root in roots]
        seen: set[str] = set()
        entered: set[str] = set()
        found: list[Node] = []
        called: list[str] = []
        while pending or called:
            if called:
                function = called.pop()
                if function in entered or function not in self.functions:
                    continue
                entered.add(function)
                found += self.functions[function]
                called += [name for node in self.functions[function] for name in node.calls()]
                continue
            name = pending.pop()
            if name in seen or name not in self.nodes:
                continue
            seen.add(name)
            node = self.nodes[name]
            found.append(node)
            pending += [_node_name(source) for source in node.inputs]
            if self.functions:
                called += node.calls()
        return found


@dataclass(slots=True)
class MetaGraph:
    """A graph with what a saver wrote beside it."""

    graph: Graph = field(default_factory=Graph)
    tags: list[str] = field(default_factory=list)
    version: str = ""
    signatures: dict[str, Signature] = field(default_factory=dict)
    signature_tensors: dict[str, list[str]] = field(default_factory=dict)
    init_ops: list[str] = field(default_factory=list)
    assets: list[str] = field(default_factory=list)


def _node_name(reference: str) -> str:
    return reference.lstrip("^").split(":", 1)[0]


def _function_name(value: Value) -> str:
    return next((text(v) for part, v in fields(message(value)) if part == 1), "")


def _node(value: Value) -> Node:
    node = Node(message(value))
    for part, content in fields(message(value)):
        if part == 1:
            node.name = text(content)
        elif part == 2:
            node.op = text(content)
        elif part == 3:
            node.inputs.append(text(content))
    return node


def parse_graph(data: memoryview) -> Graph:
    """A GraphDef."""
    graph = Graph()
    count = 0
    for part, value in fields(data):
        if part == 1:
            node = _node(value)
            graph.nodes[node.name] = node
            count += 1
        elif part == 2:
            for inner, function in fields(message(value)):
                if inner == 1:
                    name, body = _function(function)
                    graph.functions[name] = body
                    count += len(body)
                    if count > _MOST_NODES:
                        break
        if count > _MOST_NODES:
            raise ModelError(f"more than {_MOST_NODES:,} nodes, which no honest model has")
    return graph


def _function(value: Value) -> tuple[str, list[Node]]:
    name, body = "", []
    for part, content in fields(message(value)):
        if part == 1:
            name = _function_name(content)  # the name is field 1 of the function's OpDef too
        elif part == 3:
            body.append(_node(content))
            if len(body) > _MOST_NODES:
                break
    return name, body


def parse_saved_model(data: memoryview) -> list[MetaGraph]:
    """A SavedModel: one meta graph or more."""
    graphs = [message(value) for part, value in fields(data) if part == 2]
    if len(graphs) > _MOST_GRAPHS:
        raise ModelError(f"damaged: it claims to hold {len(graphs)} graphs")
    return [parse_meta_graph(graph) for graph in graphs]


def parse_meta_graph(data: memoryview) -> MetaGraph:
    """A MetaGraphDef."""
    meta = MetaGraph()
    for part, value in fields(data):
        if part == 1:
            _meta_info(meta, value)
        elif part == 2:
            meta.graph = parse_graph(message(value))
        elif part == 4:
            _collection(meta, *entry(value))
        elif part == 5:
            name, content = entry(value)
            _signature(meta, name, content)
        elif part == 6:
            meta.assets += [text(v) for inner, v in fields(message(value)) if inner == 2]
    return meta


def _meta_info(meta: MetaGraph, value: Value) -> None:
    for part, content in fields(message(value)):
        if part == 4:
            meta.tags.append(text(content))
        elif part == 5:
            meta.version = text(content)


def _collection(meta: MetaGraph, name: str, content: memoryview) -> None:
    # How TensorFlow 1 names the op that runs while a SavedModel is being loaded.
    if name in ("saved_model_main_op", "legacy_init_op"):
        for part, value in fields(content):
            if part == 1:
                meta.init_ops += [text(v) for inner, v in fields(message(value)) if inner == 1]


def _signature(meta: MetaGraph, name: str, content: memoryview) -> None:
    sides: dict[int, dict[str, TensorSpec]] = {1: {}, 2: {}}
    tensors: dict[int, list[str]] = {1: [], 2: []}
    for part, value in fields(content):
        if part in sides:
            key, info = entry(value)
            sides[part][key], names = _tensor(info)
            tensors[part] += names
    # How TensorFlow 2 names it. It is no signature that anybody calls.
    if name == "__saved_model_init_op":
        meta.init_ops += tensors[2]
    elif name != "__saved_model_train_op":
        meta.signatures[name] = Signature(sides[1], sides[2])
        meta.signature_tensors[name] = tensors[2]


def _tensor(info: memoryview) -> tuple[TensorSpec, list[str]]:
    dtype, shape, names = "unknown", None, []
    for part, value in fields(info):
        if part == 1:
            names.append(text(value))
        elif part == 2:
            dtype = dtype_name(number(value))
        elif part == 3:
            shape = parse_shape(message(value))
        elif part == 4:  # sparse: three tensors
            names += [text(v) for p, v in fields(message(value)) if p in (1, 2, 3)]
    return TensorSpec(dtype, shape), names


def dtype_name(code: int) -> str:
    """The name of a DataType."""
    return _DTYPES.get(code - 100 if code > 100 else code, f"dtype {code}")


def parse_shape(data: memoryview) -> tuple[int | None, ...] | None:
    """A TensorShapeProto; `None` for any rank."""
    dimensions: list[int | None] = []
    for part, value in fields(data):
        if part == 3 and number(value):
            return None
        if part == 2:
            size = next((number(v) for p, v in fields(message(value)) if p == 1), 0)
            dimensions.append(size if size >= 0 else None)
            if len(dimensions) > _MOST_DIMENSIONS:
                raise ModelError("damaged: a shape of more than 254 dimensions")
    return tuple(dimensions)
