"""Plans of steps on the caller's side: names in order, arrays to send, shape of the results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from sojourn.errors import InputError
from sojourn.process.calls import PreparedStep
from sojourn.session.feeding import ANY, as_array
from sojourn.values import Signature, TensorSpec
from sojourn.values.dtypes import BY_NAME
from sojourn.values.rows import Rows

Fetches = str | Iterable[str] | None
_SHAPES_REMEMBERED = 64  # per input


class PlanFacts(msgspec.Struct, frozen=True):
    """The engine's description of a plan that it has made."""

    number: int
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    slots: list[int]  # for each fetch, the index of its output; -1 for an operation
    adoptable: bool
    prints: bool
    changes_state: bool = True
    may_wait: bool = True

    def fits(self, feeds: int, fetches: int) -> bool:
        """Whether the facts are valid for a plan of so many feeds and fetches."""
        return (
            0 <= self.number < 2**32
            and len(self.inputs) == feeds
            and len(self.slots) == fetches
            and all(-1 <= slot < len(self.outputs) for slot in self.slots)
        )


class StepPlan:
    """The facts that a session needs to run a step repeatedly."""

    __slots__ = ("changes_state", "output_count", "step")

    def __init__(self, step: PreparedStep, output_count: int, changes_state: bool) -> None:
        self.step = step
        self.output_count = output_count
        self.changes_state = changes_state


class NamedPlan(StepPlan):
    """The plan of a step by names: converts the feeds and shapes the results."""

    def __init__(self, fetches: Fetches, names: list[str], feeds: list[str], facts: PlanFacts):
        step = PreparedStep(
            facts.number,
            adoptable=facts.adoptable,
            prints=facts.prints,
            may_wait=facts.may_wait,
        )
        super().__init__(step, len(facts.outputs), facts.changes_state)
        self._single = isinstance(fetches, str)
        self._by_name = names if fetches is None else None
        self._slots = facts.slots
        self._straight = facts.slots == list(range(len(facts.outputs)))
        self._is_lone = self._single and facts.slots == [0]
        # Each with the shapes that it is known to accept.
        self._inputs: list[tuple[str, TensorSpec, np.dtype | None, set[tuple[int, ...]]]] = [
            (name, spec, BY_NAME.get(spec.dtype), set())
            for name, spec in zip(feeds, facts.inputs, strict=True)
        ]

    @property
    def is_typed(self) -> bool:
        """Whether all inputs have dtypes: those of a graph do, those of a plain function do not."""
        return bool(self._inputs) and all(spec.dtype != ANY for _, spec, *_ in self._inputs)

    def arrays(self, feeds: Mapping[str, Any]) -> list[np.ndarray | Rows]:
        """Return the arrays to send, converted and checked."""
        arrays: list[np.ndarray | Rows] = []
        for name, spec, dtype, accepted in self._inputs:
            try:
                value = feeds[name]
            except (TypeError, IndexError):
                require_mapping(feeds)  # for example, a list of the same names finds the same plan
                raise
            kind = type(value)
            if (
                (kind is np.ndarray or kind is Rows)
                and dtype is not None  # numpy would take None for float64
                and value.dtype == dtype
                and (value.shape in accepted or _accepts(spec, value.shape, accepted))
            ):
                arrays.append(value)
            else:
                arrays.append(as_array(name, spec, value.joined() if kind is Rows else value))
        return arrays

    def results(self, outputs: Sequence[np.ndarray]) -> Any:
        """Shape the outputs for the caller: scalars become numpy scalars, as in TensorFlow."""
        if self._is_lone:
            output = outputs[0]
            return output if output.ndim else output[()]
        values: list[Any] = [o if o.ndim else o[()] for o in outputs]
        if not self._straight:
            values = [values[slot] if slot >= 0 else None for slot in self._slots]
        if self._single:
            return values[0]
        if self._by_name is not None:
            return dict(zip(self._by_name, values, strict=True))
        return values


def _accepts(spec: TensorSpec, shape: tuple[int, ...], accepted: set[tuple[int, ...]]) -> bool:
    """Whether an array of this shape fits; cached, because most arrays have a shape seen before."""
    if not spec.accepts(shape):
        return False
    if len(accepted) < _SHAPES_REMEMBERED:
        accepted.add(shape)
    return True


def fetch_names(fetches: Fetches, signature: Signature) -> list[str]:
    """The names to fetch, in order."""
    if fetches is None:
        return list(signature.outputs)
    if isinstance(fetches, Mapping):
        raise InputError(
            "outputs come first, then inputs: run(outputs, {input: value}), with None for all "
            "outputs"
        )
    if isinstance(fetches, bytes):
        raise InputError(_not_a_name("outputs", fetches))
    try:
        names = [fetches] if isinstance(fetches, str) else list(fetches)
    except TypeError:
        raise InputError(_not_a_name("outputs", fetches)) from None
    return [plain_name("outputs", name) for name in names]


def require_mapping(feeds: object) -> None:
    """Raise InputError unless the feeds are a mapping."""
    if not isinstance(feeds, Mapping):
        raise InputError(
            f"feeds must be a mapping from input names to values, not {type(feeds).__name__}"
        ) from None


def plain_name(what: str, name: Any) -> str:
    """Return the name as a plain string that can be sent."""
    if not isinstance(name, str):
        raise InputError(_not_a_name(what, name))
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{what} are named by strings, and {name!r} cannot be sent: {error}"
        ) from None
    return str(name)  # numpy strings become plain ones


def _not_a_name(what: str, name: object) -> str:
    return f"{what} are named by strings; {name!r} is of type {type(name).__name__}"
