"""What every engine offers, and the host that serves one to a caller near or far."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np

from sojourn.engines import hooks, seeding, shortage
from sojourn.engines.tensorflow_memory import give_back
from sojourn.errors import InputError, InternalError, ModelError
from sojourn.kinds import KINDS, Load
from sojourn.values import Signature, TensorSpec

T = TypeVar("T")
Arrays = Sequence[np.ndarray]
# An operation takes plain arguments and arrays, and gives plain results and arrays.
Operation = Callable[[dict[str, Any], Arrays], tuple[Any, Arrays]]
# From the worker to its client: meta and arrays there, status, meta and arrays back.
CallBack = Callable[[bytes, Arrays], tuple[int, bytes, Arrays]]


class EnginePlan(Protocol):
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
    def prints(self) -> bool:
        """Whether a step may write to standard output or error."""

    @property
    def may_wait(self) -> bool:
        """Whether a step may wait for what another step does, as with queues."""

    @property
    def changes_state(self) -> bool:
        """Whether what `save` saves may be different after a step."""

    def run(self, arrays: Arrays) -> Sequence[np.ndarray]:
        """Run the step."""


class Engine(Protocol):
    """One model, loaded."""

    signature: Signature

    def plan(self, feeds: Sequence[str], fetches: Sequence[str]) -> EnginePlan:
        """Prepare a step. Raises InputError for a name that is not there."""

    def operations(self) -> dict[str, Operation]:
        """What it can do besides steps, by name."""

    def close(self) -> None:
        """Let go of everything that would otherwise be lost, such as unflushed files."""


def renamed(specs: Mapping[str, T], names: Mapping[str, Any] | None) -> dict[str, T]:
    """What a model has, under the names that stand for its own, in their order."""
    if names is None:
        return dict(specs)
    if lost := [short for short, name in names.items() if name not in specs]:
        listed = ", ".join(map(repr, lost))
        raise ModelError(f"the converter has dropped {listed}, unused or an input as it is")
    return {short: specs[name] for short, name in names.items()}


def require_names(
    feeds: Sequence[str],
    fetches: Sequence[str],
    inputs: Mapping[str, TensorSpec],
    outputs: Mapping[str, TensorSpec],
    dtypes: Container[str],
) -> None:
    """Raise InputError unless all that is fed and fetched is there, of one of these types, and
    every input is fed."""
    for role, names, specs in (("input", feeds, inputs), ("output", fetches, outputs)):
        for name in names:
            if name not in specs:
                raise InputError(f"there is no {role} {name!r}; there are {', '.join(specs)}")
            if (dtype := specs[name].dtype) not in dtypes:
                raise InputError(f"{role} {name!r} is of type {dtype}, which cannot be exchanged")
    if missing := ", ".join(repr(name) for name in inputs if name not in feeds):
        raise InputError(f"to get {', '.join(fetches)} the input {missing} must be fed as well")


def load_model(load: Load, arrays: Arrays) -> Engine:
    """Load a model."""
    loader = import_kind(load.kind)
    seeding.prepare(load)
    engine: Engine = loader.load(load, arrays)
    return engine


def import_kind(kind: str) -> Any:
    """The class that loads models of this kind, with its framework imported."""
    record = KINDS[kind]
    try:
        return record.import_loader()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != record.framework:
            raise
        raise ModelError(
            f"{record.what} needs {record.framework}, which is not installed: "
            f"pip install 'sojourn[{record.extra}]'"
        ) from None


class Host:
    """Holds the engine of one session and carries out what is asked of it.

    The same object serves a worker's lanes and an inline session. One that does not trust its
    models has frameworks run no code that comes with them.
    """

    def __init__(self, *, trusting: bool = True) -> None:
        self._trusting = trusting
        self.engine: Engine | None = None
        self.refusal: Exception | None = None  # why nothing may be loaded here
        self._plans: dict[int, EnginePlan] = {}
        self._numbers = itertools.count(1)
        self._operations: dict[str, Operation] = {
            "load": self._load,
            "plan": self._plan,
            "release": self._release,
        }

    def call(self, name: str, arguments: Any, arrays: Arrays) -> tuple[Any, Arrays]:
        """Carry out a named operation."""
        if self.refusal is not None:
            raise self.refusal
        operation = self._operations.get(name)
        if operation is None:
            raise InternalError(f"this engine has no operation {name!r}")
        return operation(arguments, arrays)

    def step(self, number: int) -> EnginePlan:
        """The plan with this number."""
        return self._plans[number]

    def connect(self, call_back: CallBack) -> None:
        """Tell the engine how to reach the functions that live with the caller."""
        self.engine.connect(call_back)  # type: ignore[union-attr]

    def close(self) -> None:
        """Close the engine."""
        if self.engine is not None:
            self.engine.close()

    def _load(self, arguments: Any, arrays: Arrays) -> tuple[Any, Arrays]:
        load = arguments if isinstance(arguments, Load) else _received(arguments)
        if not self._trusting:
            hooks.distrust()
            load = msgspec.structs.replace(load, untrusted=True)
        self.engine = engine = load_model(load, arrays)
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
            "may_wait": plan.may_wait,
        }
        return facts, ()

    def _release(self, arguments: dict[str, Any], arrays: Arrays) -> tuple[Any, Arrays]:
        self._plans.pop(arguments["number"], None)
        return None, ()


def _received(arguments: Any) -> Load:
    try:
        return msgspec.convert(arguments, Load)
    except msgspec.ValidationError as error:
        raise ModelError(f"the model cannot be loaded like that: {error}") from None
