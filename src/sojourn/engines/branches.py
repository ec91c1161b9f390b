"""Find tensors that may have no value at the end of a step: those in a branch not taken.

TensorFlow's `run` refuses to fetch a tensor without a value. Its compiled callables do not check,
and return an empty float32 array for any such tensor. So such a tensor is only fetched by `run`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

SWITCHES = frozenset({"Switch", "RefSwitch", "_SwitchN"})
_MERGES = frozenset({"Merge", "RefMerge"})
_EXITS = frozenset({"Exit", "RefExit"})
_NEXT = frozenset({"NextIteration", "RefNextIteration"})


class Branches:
    """The nesting depth of a graph's ops in branches. The graph may grow; threads may share it."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._version = 0
        self._looked_at = 0
        self._has_switches = False
        self._depths: dict[str, int] = {}

    def may_lack(self, names: Iterable[str]) -> bool:
        """Whether one of the named ops may have no results at the end of a step."""
        return self._branches() and any(self._depth(name) > 0 for name in names)

    def _branches(self) -> bool:
        if not self._has_switches and self._graph.version != self._version:
            version, operations = self._graph.version, self._graph.get_operations()
            new = operations[self._looked_at :]
            self._has_switches = any(op.type in SWITCHES for op in new)
            self._version, self._looked_at = version, len(operations)
        return self._has_switches

    def _depth(self, name: str) -> int:
        if name not in self._depths:
            self._depths.update(self._found(self._graph.get_operation_by_name(name)))
        return self._depths[name]

    def _found(self, op: Any) -> dict[str, int]:
        """Return the depth of an op and of all ops that it depends on."""
        found: dict[str, int] = {}
        stack: list[tuple[Any, int, list[Any] | None]] = [(op, 0, None)]
        while stack:
            op, change, before = stack.pop()
            name = op.name
            if before is not None:
                depths = (self._depths.get(b.name, found.get(b.name, 0)) for b in before)
                found[name] = max(0, max(depths, default=0) + change)
            elif name not in found and name not in self._depths:
                found[name] = 0  # provisional, for a cycle that leads back to this op
                change, before = _step_into(op)
                stack.append((op, change, before))
                stack.extend((b, 0, None) for b in before)
        return found


def _step_into(op: Any) -> tuple[int, list[Any]]:
    """Return how much deeper an op is than its dependencies, and these dependencies."""
    before = [tensor.op for tensor in op.inputs]
    change = 0
    if op.type in SWITCHES:
        change = 1
    elif op.type in _EXITS:
        change = -1
    elif op.type in _MERGES:
        entered = [b for b in before if b.type not in _NEXT]
        # The Merge of a loop joins its iterations; any other Merge joins two branches.
        change = -1 if len(entered) == len(before) else 0
        before = entered
    return change, before + list(op.control_inputs)
