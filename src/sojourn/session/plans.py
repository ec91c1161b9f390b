"""Steps as the caller knows them: names in order, what to send, how to shape what comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from sojourn.errors import InputError
from sojourn.process.calls import step_meta
from sojourn.session.feeding import as_array
from sojourn.values import Signature, TensorSpec
from sojourn.values.dtypes import BY_NAME

Fetches = str | Sequence[str] | None


class PlanFacts(msgspec.Struct, frozen=True):
    """What the engine says of a plan it has made."""

    number: int
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    slots: list[int]  # for each fetch, which of the outputs it is; -1 for an operation
    adoptable: bool
    prints: bool
    changes_state: bool = True

    def fits(self, feeds: int, fetches: int) -> bool:
        """Whether it is about as many things as it was asked for."""
        return (
            0 <= self.number < 2**32
            and len(self.inputs) == feeds
            and len(self.slots) == fetches
            and all(-1 <= slot < len(self.outputs) for slot in self.slots)
        )


class Plan:
    """A step as the caller knows it: names in order, and how to shape the results."""

    def __init__(self, fetches: Fetches, names: list[str], feeds: list[str], facts: PlanFacts):
        self.meta = step_meta(facts.number)
        self.adoptable = facts.adoptable
        self.prints = facts.prints
        self.changes_state = facts.changes_state
        self._single = isinstance(fetches, str)
        self._by_name = names if fetches is None else None
        self._slots = facts.slots
        self.output_count = len(facts.outputs)
        self._straight = facts.slots == list(range(len(facts.outputs)))
        self._inputs = [
            (name, spec, BY_NAME.get(spec.dtype))
            for name, spec in zip(feeds, facts.inputs, strict=True)
        ]

    def arrays(self, feeds: Mapping[str, Any]) -> list[np.ndarray]:
        """What to send, converted and checked."""
        arrays = []
        for name, spec, dtype in self._inputs:
            value = feeds[name]
            if (
                dtype is not None  # or numpy takes it for float64
                and type(value) is np.ndarray
                and value.dtype == dtype
                and spec.accepts(value.shape)
            ):
                arrays.append(value)
            else:
                arrays.append(as_array(name, spec, value))
        return arrays

    def results(self, outputs: Sequence[np.ndarray]) -> Any:
        """What the caller gets: scalars as numpy scalars, as TensorFlow gives them."""
        values: list[Any] = [o if o.ndim else o[()] for o in outputs]
        if not self._straight:
            values = [values[slot] if slot >= 0 else None for slot in self._slots]
        if self._single:
            return values[0]
        if self._by_name is not None:
            return dict(zip(self._by_name, values, strict=True))
        return values


def fetch_names(fetches: Fetches, signature: Signature) -> list[str]:
    """The names to fetch, in order."""
    if fetches is None:
        return list(signature.outputs)
    try:
        names = [fetches] if isinstance(fetches, str) else list(fetches)
    except TypeError:
        raise InputError(_not_a_name("outputs", fetches)) from None
    return [plain_name("outputs", name) for name in names]


def plain_name(what: str, name: Any) -> str:
    """A name as it can be sent."""
    if not isinstance(name, str):
        raise InputError(_not_a_name(what, name))
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{what} go by name, and {name!r} cannot be one: {error}") from None
    return str(name)  # also if it came out of an array


def _not_a_name(what: str, name: object) -> str:
    return f"{what} go by name; {name!r} is of type {type(name).__name__}"
