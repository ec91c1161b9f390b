"""Steps through TensorFlow's compiled callables: a fraction of what `Session.run` costs.

The executor either runs a step on the calling thread (cheapest for small graphs, but without
parallelism between ops) or on TensorFlow's pool. Which is faster is measured during the first
calls of each step. A step with an op that may block stays on the pool: on the calling thread it
could wait for itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import pywrap_tf_session as c_api

from sojourn.engines.base import Arrays
from sojourn.values import TensorSpec

_TRIALS = 6  # timed calls of each kind before the choice is made
_CALLING_THREAD = -1

_BLOCKING_PARTS = (
    "Queue", "Barrier", "Stage", "Unstage", "Recv", "Iterator", "Dataset", "PyFunc", "Accumulator",
    "Lookup", "TensorArray", "Stack", "Mutex", "Collective", "Rendezvous", "Batch", "Summary",
)  # fmt: skip
_CONTROL_FLOW = frozenset(
    "Enter Exit Merge Switch NextIteration LoopCond RefEnter RefExit RefMerge RefSwitch While "
    "StatelessWhile If StatelessIf Case StatelessCase For PartitionedCall StatefulPartitionedCall "
    "RemoteCall SymbolicGradient MapDefun".split()
)
_PRINTING_PARTS = ("Print", "PyFunc", "Logging")
# Ops that only compute: they read their inputs and keep nothing.
_KEEPING_PARTS = (
    "Assign", "Queue", "Stack", "TensorArray", "Stage", "Barrier", "Accumulator", "SessionHandle",
    "PyFunc", "Dataset", "Iterator", "Lookup", "HashTable", "Buffer", "List", "Map", "Scatter",
    "Enter", "PartitionedCall", "While", "If", "Case", "Apply", "Count", "Optional", "Batch",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What the ops of a step allow."""

    may_block: bool
    may_keep_feeds: bool
    prints: bool
    unfed: tuple[str, ...]  # placeholders that it cannot do without


def step_facts(graph: Any, feeds: Sequence[Any], fetches: Any, targets: Any) -> StepFacts:
    """Look at every op that the step can reach, with the functions the graph has."""
    fed = {t.ref() for t in feeds}
    stack = [t.op for t in fetches if t.ref() not in fed] + list(targets)
    seen: set[int] = set()
    types: set[str] = set()
    unfed: list[str] = []
    while stack:
        op = stack.pop()
        if id(op) in seen:
            continue
        seen.add(id(op))
        types.add(op.type)
        if op.type == "Placeholder":
            unfed.append(op.name)
        stack.extend(t.op for t in op.inputs if t.ref() not in fed)
        stack.extend(op.control_inputs)
    if types & _CONTROL_FLOW:
        for function in graph._functions.values():
            definition = getattr(function, "definition", None) or function.cached_definition
            types |= {node.op for node in definition.node_def}

    def any_has(parts: Sequence[str]) -> bool:
        return any(part in kind for kind in types for part in parts)

    return StepFacts(
        may_block=any_has(_BLOCKING_PARTS) or bool(types & _CONTROL_FLOW),
        may_keep_feeds=any_has(_KEEPING_PARTS),
        prints=any_has(_PRINTING_PARTS),
        # In a branch that is not taken a placeholder need not be fed.
        unfed=() if types & _CONTROL_FLOW else tuple(unfed),
    )


class CompiledStep:
    """A step with fixed feeds and fetches, ready to run again and again."""

    def __init__(
        self,
        session: Any,
        feeds: Sequence[Any],
        fetches: Sequence[Any],
        targets: Sequence[Any],
        facts: StepFacts,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        slots: Sequence[int],
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.slots = slots
        self.adoptable = not facts.may_keep_feeds
        self.prints = facts.prints
        self._strings = any(spec.dtype == "string" for spec in outputs)
        names = (
            [t.name for t in feeds],
            [t.name for t in fetches],
            [op.name for op in targets],
        )
        pooled = _Callable(session, *names, pool=0)
        self._run: Callable[[Arrays], Any] = pooled
        if not facts.may_block:
            self._run = _Trial(self, _Callable(session, *names, pool=_CALLING_THREAD), pooled)

    def run(self, arrays: Arrays) -> Sequence[np.ndarray]:
        """Run it once."""
        results = self._run(arrays)
        if self._strings:
            return [_as_array(result) for result in results]
        return results  # type: ignore[no-any-return]


class _Callable:
    __slots__ = ("_callable", "_handle", "_session")

    def __init__(
        self, session: Any, feeds: list[str], fetches: list[str], targets: list[str], pool: int
    ) -> None:
        options = config_pb2.CallableOptions(feed=feeds, fetch=fetches, target=targets)
        options.run_options.inter_op_thread_pool = pool
        self._callable = session._make_callable_from_options(options)  # it owns the handle
        self._session = session._session
        self._handle = self._callable._handle

    def __call__(self, arrays: Arrays) -> Any:
        return c_api.TF_SessionRunCallable(self._session, self._handle, arrays, None)


class _Trial:
    """Runs each call for real, on one executor or the other, and keeps the faster one."""

    def __init__(self, step: CompiledStep, calling: _Callable, pooled: _Callable) -> None:
        self._step = step
        self._rivals = (calling, pooled)
        self._times: tuple[list[float], list[float]] = ([], [])
        self._calls = 0

    def __call__(self, arrays: Arrays) -> Any:
        self._calls += 1
        which = self._calls % 2
        started = time.perf_counter()
        result = self._rivals[which](arrays)
        self._times[which].append(time.perf_counter() - started)
        if len(self._times[1]) > _TRIALS and len(self._times[0]) > _TRIALS:
            # The first calls of each are spent on set-up; the quickest tells what it can do.
            calling, pooled = (min(times[1:]) for times in self._times)
            self._step._run = self._rivals[0 if calling <= pooled else 1]
        return result


def _as_array(result: Any) -> np.ndarray:
    return result if hasattr(result, "dtype") else np.array(result, dtype=object)
