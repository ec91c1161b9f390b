"""The interface of every engine, and the host that serves an engine in or out of process."""

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
# An operation takes plain arguments and arrays, and returns plain results and arrays.
Operation = Callable[[dict[str, Any], Arrays], tuple[Any, Arrays]]
# A call from the worker to its client: sends meta and arrays, returns status, meta and arrays.
CallBack = Callable[[bytes, Arrays], tuple[int, bytes, Arrays]]


class EnginePlan(Protocol):
    """A prepared step: the same feeds and fetches every time."""

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """The specs of the feeds, in order."""

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """The specs of the outputs, in order."""

    @property
    def slots(self) -> Sequence[int]:
        """For each fetch, the index of its output; -1 if the fetch has no value."""

    @property
    def adoptable(self) -> bool:
        """Whether feeds may be read in place, because no op of the step can keep one."""

    @property
    def prints(self) -> bool:
        """Whether a step may write to standard output or error."""

    @property
    def may_wait(self) -> bool:
        """Whether a step may wait for another step, as with queues."""

    @property
    def changes_state(self) -> bool:
        """Whether a step may change the state that `save` writes."""

    def run(self, arrays: Arrays) -> Sequence[np.ndarray]:
        """Run the step."""


class Engine(Protocol):
    """A loaded model."""

    signature: Signature

    def plan(self, feeds: Sequence[str], fetches: Sequence[str]) -> EnginePlan:
        """Prepare a step. Raises InputError for an unknown name."""

    def operations(self) -> dict[str, Operation]:
        """The operations that it offers besides steps, by name."""

    def close(self) -> None:
        """Write out everything that would otherwise be lost, such as unflushed files."""


def renamed(specs: Mapping[str, T], names: Mapping[str, Any] | None) -> dict[str, T]:
    """Return the specs under the new names in `names` (new name -> the model's own), in order."""
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
    """Raise InputError unless all feeds and fetches exist and have one of these dtypes, and every
    input is fed."""
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
    """Import the framework for this kind of model and return the class that loads it."""
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
    """Holds the engine of one session and carries out its operations.

    The same object serves a worker's lanes and an inline session. A host that does not trust its
    models makes the frameworks refuse to run code that comes with a model.
    """

    def __init__(self, *, trusting: bool = True) -> None:
        self._trusting = trusting
        self.engine: Engine | None = None
        self.refusal: Exception | None = None  # why this host may load nothing
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
        """Return the plan with this number."""
        return self._plans[number]

    def connect(self, call_back: CallBack) -> None:
        """Give the engine a way to call the functions that live in the caller's process."""
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
