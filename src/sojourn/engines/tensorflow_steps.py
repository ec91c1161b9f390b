"""Steps through TensorFlow's compiled callables: a fraction of what `Session.run` costs.

The executor runs a step either on the calling thread (cheapest for small graphs, but without
parallelism between ops) or on TensorFlow's pool. The faster one is measured during the first
calls of each step. A step with an op that may block stays on the pool: on the calling thread it
could wait for itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import pywrap_tf_session as c_api

from sojourn.engines import denormals
from sojourn.engines.base import Arrays
from sojourn.engines.branches import SWITCHES
from sojourn.engines.variables import CHANGING_PARTS
from sojourn.values import TensorSpec

_TRIALS = 6  # timed calls of each kind before the choice is made
_CALLING_THREAD = -1

_BLOCKING_PARTS = (
    "Queue", "Barrier", "Stage", "Unstage", "Recv", "Iterator", "Dataset", "PyFunc", "Accumulator",
    "Lookup", "TensorArray", "Stack", "Mutex", "Collective", "Rendezvous", "Summary",
    "BatchFunction", "Unbatch",
)  # fmt: skip
# Ops with these parts hold resources of a step or look something up, and wait for nothing.
_PATIENT_PARTS = ("Lookup", "TensorArray", "Stack", "Summary")
_WAITING_PARTS = tuple(part for part in _BLOCKING_PARTS if part not in _PATIENT_PARTS)
_CONTROL_FLOW = frozenset(
    "Enter Exit Merge Switch NextIteration LoopCond RefEnter RefExit RefMerge RefSwitch While "
    "StatelessWhile If StatelessIf Case StatelessCase For PartitionedCall StatefulPartitionedCall "
    "RemoteCall SymbolicGradient MapDefun".split()
)
_LOOPS = frozenset("While StatelessWhile For NextIteration RefNextIteration".split())
# A call counts as what its function does: TensorFlow inlines the body.
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_PRINTING_PARTS = ("Print", "PyFunc", "Logging")
# Ops with these parts may keep their inputs beyond the step; all others only compute with them.
_KEEPING_PARTS = (
    "Assign", "Queue", "Stack", "TensorArray", "Stage", "Barrier", "Accumulator", "SessionHandle",
    "PyFunc", "Dataset", "Iterator", "Lookup", "HashTable", "Buffer", "List", "Map", "Scatter",
    "Enter", "While", "If", "Case", "Apply", "Count", "Optional", "BatchFunction", "Unbatch",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What the ops of a step can do."""

    may_block: bool
    may_wait: bool  # for another step
    may_keep_feeds: bool
    prints: bool
    unfed: tuple[str, ...]  # placeholders that must be fed and are not
    changes_state: bool  # a variable or a table may have changed afterwards
    loops: bool  # its duration may depend on its inputs
    ops: int


def step_facts(graph: Any, feeds: Sequence[Any], fetches: Any, targets: Any) -> StepFacts:
    """Inspect every op that the step can reach, and the functions that these ops call."""
    fed = {t.ref() for t in feeds}
    stack = [t.op for t in fetches if t.ref() not in fed] + list(targets)
    seen: set[int] = set()
    types: set[str] = set()
    unfed: list[str] = []
    called: set[str] = set()
    while stack:
        op = stack.pop()
        if id(op) in seen:
            continue
        seen.add(id(op))
        types.add(op.type)
        if op.type == "Placeholder":
            unfed.append(op.name)
        elif op.type in _CONTROL_FLOW:
            called |= _functions_of(op.node_def)
        stack.extend(t.op for t in op.inputs if t.ref() not in fed)
        stack.extend(op.control_inputs)
    in_graph = frozenset(types)
    types |= _types_in_functions(graph, called)

    def any_has(parts: Sequence[str]) -> bool:
        return any(part in kind for kind in types for part in parts)

    return StepFacts(
        may_block=any_has(_BLOCKING_PARTS) or bool(types & (_CONTROL_FLOW - _CALLS)),
        may_wait=any_has(_WAITING_PARTS),
        may_keep_feeds=any_has(_KEEPING_PARTS),
        prints=any_has(_PRINTING_PARTS),
        # A placeholder in a branch that is not taken need not be fed.
        unfed=() if in_graph & SWITCHES else tuple(unfed),
        changes_state=any_has(CHANGING_PARTS),
        loops=bool(types & _LOOPS),
        ops=len(seen),
    )


def _types_in_functions(graph: Any, called: set[str]) -> set[str]:
    types: set[str] = set()
    known: set[str] = set()
    while called:
        name = called.pop()
        function = graph._functions.get(name)
        if name in known or function is None:
            continue
        known.add(name)
        with graph.as_default():  # read eagerly, it would be registered with the eager runtime
            definition = getattr(function, "definition", None) or function.cached_definition
        for node in definition.node_def:
            types.add(node.op)
            called |= _functions_of(node)
    return types


def _functions_of(node: Any) -> set[str]:
    names: set[str] = set()
    for value in node.attr.values():
        if value.HasField("func"):
            names.add(value.func.name)
        elif value.HasField("list"):
            names.update(function.name for function in value.list.func)
    return names


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
        may_lack: bool = False,
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.slots = slots
        self.adoptable = not facts.may_keep_feeds
        self.prints = facts.prints
        self.may_wait = facts.may_wait
        self.changes_state = facts.changes_state
        # TensorFlow refuses to fetch a fed tensor; its result is the fed value.
        places = {t.ref(): i for i, t in enumerate(feeds)}
        self._echoes = [(i, places[t.ref()]) for i, t in enumerate(fetches) if t.ref() in places]
        fetches = [t for t in fetches if t.ref() not in places]
        self._strings = any(spec.dtype == "string" for spec in outputs)
        names = (
            [t.name for t in feeds],
            [t.name for t in fetches],
            [op.name for op in targets],
        )
        self._names = names
        self._run: Callable[[Arrays], Any] = _nothing_to_do
        if not fetches and not targets:
            return
        if may_lack:  # may lack a result, which callables would not report
            self._run = _PlainRun(session, *names)
            return
        self._run = pooled = StepCallable(session, *names, pool=0)
        if not facts.may_block:
            self._run = ExecutorTrial(self, _Later(session, *names, pool=_CALLING_THREAD), pooled)

    def run_first_by(self, make: Callable[..., Callable[[Arrays], Any]]) -> None:
        """Let the first run take another way, made from the names of feeds, fetches and targets."""
        usual = self._run
        if usual is _nothing_to_do or isinstance(usual, _PlainRun):
            return

        def first(arrays: Arrays) -> Any:
            self._run = usual
            return make(*self._names)(arrays)

        self._run = first

    def run(self, arrays: Arrays) -> Sequence[np.ndarray]:
        """Run the step once."""
        results = self._run(arrays)
        if self._strings:
            results = [_as_array(result) for result in results]
        for place, fed in self._echoes:
            results.insert(place, arrays[fed])
        return results  # type: ignore[no-any-return]


class StepCallable:
    """A step compiled for one executor: `pool` is TensorFlow's (0) or the calling thread (-1)."""

    __slots__ = ("_callable", "_handle", "_session")

    def __init__(
        self, session: Any, feeds: list[str], fetches: list[str], targets: list[str], pool: int
    ) -> None:
        options = config_pb2.CallableOptions(feed=feeds, fetch=fetches, target=targets)
        options.run_options.inter_op_thread_pool = pool
        self._callable = session._make_callable_from_options(options)  # owns the handle
        self._session = session._session
        self._handle = self._callable._handle

    def __call__(self, arrays: Arrays) -> Any:
        denormals.flush_here()
        return c_api.TF_SessionRunCallable(self._session, self._handle, arrays, None)


class _PlainRun:
    """A step by TensorFlow's own `run`, which checks that every fetched tensor has a value."""

    def __init__(
        self, session: Any, feeds: list[str], fetches: list[str], targets: list[str]
    ) -> None:
        self._session, self._feeds = session, feeds
        self._fetches = [fetches, targets]

    def __call__(self, arrays: Arrays) -> Any:
        return self._session.run(self._fetches, dict(zip(self._feeds, arrays, strict=True)))[0]


class _Later:
    """A `StepCallable` compiled at its first call, so that the first result does not wait."""

    __slots__ = ("_arguments", "_callable", "_lock")

    def __init__(self, *arguments: Any, pool: int) -> None:
        self._arguments = (*arguments, pool)
        self._callable: StepCallable | None = None
        self._lock = threading.Lock()

    def made(self) -> StepCallable:
        """Return the callable; compile it if needed."""
        with self._lock:
            self._callable = self._callable or StepCallable(*self._arguments)
            return self._callable

    def __call__(self, arrays: Arrays) -> Any:
        return self.made()(arrays)


class ExecutorTrial:
    """Runs each call for real, on one executor or the other, and then keeps the faster one."""

    def __init__(
        self, step: CompiledStep, calling: Callable[[Arrays], Any], pooled: Callable[[Arrays], Any]
    ) -> None:
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
            # The first call of each is set-up; the fastest one shows what the executor can do.
            calling, pooled = (min(times[1:]) for times in self._times)
            faster = self._rivals[0 if calling <= pooled else 1]
            self._step._run = faster.made() if isinstance(faster, _Later) else faster
        return result


def _nothing_to_do(arrays: Arrays) -> list[Any]:
    return []


def _as_array(result: Any) -> np.ndarray:
    return result if hasattr(result, "dtype") else np.array(result, dtype=object)
