"""Graphs out of their serialised form: nodes, functions, and what reaches what.

Knows the few fields of TensorFlow's messages that matter here, by number; skips the rest. What
occurs twice is kept twice: nothing that TensorFlow could take may be hidden by what follows it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from sojourn.errors import ModelError
from sojourn.probes.model_files.wire import Value, entry, fields, message, raw, text

T = TypeVar("T")

# Far above any model. Two bytes of a hostile file make one, which takes hundreds here.
_MOST_NODES = 1_000_000  # and functions
_MOST_INPUTS = 10_000_000
_MOST_ATTRIBUTES = 10_000  # of one node
_MOST_NAMED = 100_000  # functions or texts in the attributes of one node


def _at_most(most: int, found: Iterator[T]) -> Iterator[T]:
    """As many of these as an honest op has."""
    yield from itertools.islice(found, most)
    if next(found, None) is not None:
        raise ModelError(f"more than {most:,} attributes, names or texts in one op")


@dataclass(slots=True)
class Node:
    """One op of a graph or function."""

    serialised: memoryview
    name: bytes = b""
    op: bytes = b""
    inputs: list[bytes] = field(default_factory=list)
    _called: tuple[bytes, ...] | None = None

    def attributes(self) -> Iterator[tuple[bytes, memoryview]]:
        """The names and the serialised values of its attributes."""
        found = (entry(value) for part, value in fields(self.serialised) if part == 5)
        return _at_most(_MOST_ATTRIBUTES, found)

    def texts(self, name: str) -> list[str]:
        """A text attribute, or a list of them."""

        def found() -> Iterator[str]:
            for part, value in fields(dict(self.attributes()).get(name.encode(), memoryview(b""))):
                if part == 2:
                    yield text(value)
                elif part == 1:
                    yield from (text(v) for p, v in fields(message(value)) if p == 2)

        return list(_at_most(_MOST_NAMED, found()))

    def has_placeholder(self, name: str) -> bool:
        """Whether an attribute is said where the function that this is in is called."""
        value = dict(self.attributes()).get(name.encode(), memoryview(b""))
        return any(part == 9 for part, _ in fields(value))

    def calls(self) -> tuple[bytes, ...]:
        """The functions that it calls: its op may be one, its attributes may name more."""
        if self._called is None:
            named = (function for _, function in self.named_functions())
            self._called = (self.op, *_at_most(_MOST_NAMED, named))
        return self._called

    def named_functions(self) -> Iterator[tuple[bytes, bytes]]:
        """The functions that its attributes name, with the attribute; those given to others have
        none."""
        pending = list(self.attributes())
        while pending:
            name, attribute = pending.pop()
            for part, value in fields(attribute):
                functions: Iterable[Value] = [value] if part == 10 else ()
                if part == 1:
                    functions = (v for p, v in fields(message(value)) if p == 9)
                for inner, content in (f for v in functions for f in fields(message(v))):
                    if inner == 1:
                        yield name, raw(content)
                    elif inner == 2:  # a function is given attributes, which may be functions
                        pending.append((b"", entry(content)[1]))
                        if len(pending) > _MOST_ATTRIBUTES:
                            raise ModelError(f"more than {_MOST_ATTRIBUTES:,} in one op")


@dataclass(slots=True)
class Function:
    """The body of a function, and which of its arguments is called how."""

    arguments: dict[bytes, int] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    has_lists: bool = False  # one argument may stand for several, so that places say nothing


@dataclass(slots=True)
class Graph:
    """A graph and its library of functions, by name."""

    nodes: dict[bytes, list[Node]] = field(default_factory=dict)
    functions: dict[bytes, list[Function]] = field(default_factory=dict)
    # What TensorFlow calls in place of others: gradients, and other ways to do the same.
    substitutes: list[bytes] = field(default_factory=list)
    node_count: int = 0
    input_count: int = 0

    def every_node(self) -> Iterator[Node]:
        """Those of the graph and those of every function."""
        for same_name in self.nodes.values():
            yield from same_name
        for definitions in self.functions.values():
            for function in definitions:
                yield from function.nodes

    def reachable(self, roots: Iterable[bytes]) -> list[Node]:
        """What runs when these nodes (or tensors) are asked for, inside functions too."""
        pending = [node_name(root) for root in roots]
        seen: set[bytes] = set()
        entered: set[bytes] = set()
        found: list[Node] = []
        called: list[bytes] = list(self.substitutes)
        while pending or called:
            if called:
                function = called.pop()
                if function in entered or function not in self.functions:
                    continue
                entered.add(function)
                for definition in self.functions[function]:
                    found += definition.nodes
                    called += [name for node in definition.nodes for name in node.calls()]
                continue
            name = pending.pop()
            if name in seen or name not in self.nodes:
                continue
            seen.add(name)
            for node in self.nodes[name]:
                found.append(node)
                pending += [node_name(source) for source in node.inputs]
                if self.functions:
                    called += node.calls()
        return found

    def read(self, data: memoryview) -> None:
        """Add what a serialised GraphDef holds."""
        for part, value in fields(data):
            if part == 1:
                node = self._node(value)
                self.nodes.setdefault(node.name, []).append(node)
            elif part == 2:
                for inner, function in fields(message(value)):
                    if inner == 1:
                        self._function(function)
                    elif inner == 2:  # the function that is the gradient of another
                        self._count()
                        self.substitutes += [raw(v) for p, v in fields(message(function)) if p == 2]

    def _function(self, value: Value) -> None:
        self._count()  # an empty one takes its place, too
        name, function, argument_count, is_substitute = b"", Function(), 0, False
        for part, content in fields(message(value)):
            if part == 1:  # its OpDef, which has the name and the arguments
                for inner, detail in fields(message(content)):
                    if inner == 1:
                        name = raw(detail)
                    elif inner == 2:
                        self._count_input()
                        for about, value in fields(message(detail)):
                            if about == 1:
                                function.arguments[raw(value)] = argument_count
                            function.has_lists |= about in (5, 6)
                        argument_count += 1
            elif part == 3:
                function.nodes.append(self._node(content))
            elif part == 5:
                is_substitute |= entry(content)[0] == b"api_implements"
        if is_substitute:
            self.substitutes.append(name)
        self.functions.setdefault(name, []).append(function)

    def _node(self, value: Value) -> Node:
        self._count()
        node = Node(message(value))
        for part, content in fields(node.serialised):
            if part == 1:
                node.name = raw(content)
            elif part == 2:
                node.op = raw(content)
            elif part == 3:
                self._count_input()
                node.inputs.append(raw(content))
        return node

    def _count(self) -> None:
        self.node_count += 1
        if self.node_count > _MOST_NODES:
            raise ModelError(f"more than {_MOST_NODES:,} nodes, which no honest model has")

    def _count_input(self) -> None:
        self.input_count += 1
        if self.input_count > _MOST_INPUTS:
            raise ModelError(f"more than {_MOST_INPUTS:,} inputs, which no honest model has")


def parse_graph(data: memoryview) -> Graph:
    """A GraphDef."""
    graph = Graph()
    graph.read(data)
    return graph


def node_name(reference: bytes) -> bytes:
    """The node that a tensor or a control input comes from."""
    return reference.lstrip(b"^").split(b":", 1)[0]
