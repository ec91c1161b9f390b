"""What every engine offers, and the host that serves one to a caller near or far."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from sojourn.engines import seeding, shortage
from sojourn.engines.tensorflow_memory import give_back
from sojourn.errors import InternalError
from sojourn.values import Signature, TensorSpec

Arrays = Sequence[np.ndarray]
# An operation takes plain arguments and arrays, and gives plain results and arrays.
Operation = Callable[[dict[str, Any], Arrays], tuple[Any, Arrays]]
# From the worker to its client: meta and arrays there, status, meta and arrays back.
CallBack = Callable[[bytes, Arrays], tuple[int, bytes, Arrays]]


class Plan(Protocol):
    """One kind of step, prepared: the same feeds and fetches every time."""

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """What it is fed, in order."""

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """What it gives, in order."""

    @property
    def slots(self) -> Sequence[int]:
        """For each fetch, which of the outputs it is; -1 if it gives nothing."""

    @property
    def adoptable(self) -> bool:
        """Whether feeds may be read in place: no op of the step can keep one."""

    @property
    def may_echo(self) -> bool:
        """Whether a result can be the memory of a feed."""

    @property
    def prints(self) -> bool:
        """Whether a step may write to standard output or error."""

    @property
    def changes_state(self) -> bool:
        """Whether what `save` saves may be different after a step."""

    def run(self, arrays: Arrays) -> Sequence[np.ndarray]:
        """Run the step."""


class Engine(Protocol):
    """One model, loaded."""

    signature: Signature

    def plan(self, feeds: Sequence[str], fetches: Sequence[str]) -> Plan:
        """Prepare a step. Raises InputError for a name that is not there."""

    def operations(self) -> dict[str, Operation]:
        """What it can do besides steps, by name."""

    def close(self) -> None:
        """Let go of everything that would otherwise be lost, such as unflushed files."""


# kind -> where the class is that loads it: `Class.load(arguments, arrays) -> Engine`
KINDS = {
    "graph": "sojourn.engines.tensorflow:GraphEngine",
    "builder": "sojourn.engines.builder:BuilderEngine",
    "savedmodel": "sojourn.engines.savedmodel:SavedModelEngine",
    "packed": "sojourn.engines.tracing:PackedEngine",
    "keras": "sojourn.engines.keras_model:KerasFileEngine",
    "frozen": "sojourn.engines.frozen:FrozenEngine",
    "metagraph": "sojourn.engines.metagraph:MetaGraphEngine",
    "calling": "sojourn.engines.calling:CallingEngine",
    "session": "sojourn.engines.remote_session:SessionEngine",
}


def load(kind: str, arguments: dict[str, Any], arrays: Arrays) -> Engine:
    """Load a model of this kind."""
    loader = import_kind(kind)
    seeding.prepare(arguments)
    engine = loader.load(arguments, arrays)
    return engine  # type: ignore[no-any-return]


def import_kind(kind: str) -> Any:
    """The class that loads models of this kind, with its framework imported."""
    module, _, name = KINDS[kind].partition(":")
    return getattr(importlib.import_module(module), name)


class Host:
    """Holds the engine of one session and carries out what is asked of it.

    The same object serves a worker's lanes and an inline session.
    """

    def __init__(self) -> None:
        self.engine: Engine | None = None
        self.refusal: Exception | None = None  # why nothing may be loaded here
        self._plans: dict[int, Plan] = {}
        self._numbers = itertools.count(1)
        self._operations: dict[str, Operation] = {
            "load": self._load,
            "plan": self._plan,
            "release": self._release,
        }

    def call(self, name: str, arguments: dict[str, Any], arrays: Arrays) -> tuple[Any, Arrays]:
        """Carry out a named operation."""
        if self.refusal is not None:
            raise self.refusal
        operation = self._operations.get(name)
        if operation is None:
            raise InternalError(f"this engine has no operation {name!r}")
        return operation(arguments, arrays)

    def step(self, number: int) -> Plan:
        """The plan with this number."""
        return self._plans[number]

    def connect(self, call_back: CallBack) -> None:
        """Tell the engine how to reach the functions that live with the caller."""
        self.engine.connect(call_back)  # type: ignore[union-attr]

    def close(self) -> None:
        """Close the engine."""
        if self.engine is not None:
            self.engine.close()

    def _load(self, arguments: dict[str, Any], arrays: Arrays) -> tuple[Any, Arrays]:
        self.engine = engine = load(arguments["kind"], arguments, arrays)
        give_back()
        self._operations.update(engine.operations())
        return {"signature": engine.signature, "operations": list(engine.operations())}, ()

    def _plan(self, arguments: dict[str, Any], arrays: Arrays) -> tuple[Any, Arrays]:
        assert self.engine is not None
        plan = self.engine.plan(**arguments)
        number = next(self._numbers)
        self._plans[number] = shortage.guarded(plan)
        facts = {
            "number": number,
            "inputs": list(plan.inputs),
            "outputs": list(plan.outputs),
            "slots": list(plan.slots),
            "adoptable": plan.adoptable,
            "prints": plan.prints,
            "changes_state": plan.changes_state,
        }
        return facts, ()

    def _release(self, arguments: dict[str, Any], arrays: Arrays) -> tuple[Any, Arrays]:
        self._plans.pop(arguments["number"], None)
        return None, ()
