"""A plain function as an engine: takes and returns arrays by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import cloudpickle
import numpy as np

from sojourn.engines import code_capture, code_serving, parcels
from sojourn.engines.base import Arrays, Operation
from sojourn.engines.by_value import by_value_if_needed
from sojourn.errors import InputError, ModelError
from sojourn.kinds import Load
from sojourn.values import Signature, TensorSpec, plain_arrays

_ANY = TensorSpec("any", None)


def pack(function: Callable[..., Any]) -> list[np.ndarray]:
    """Pack the user's callable for a worker, with the code of its modules as imported."""
    code = code_capture.packed(function)
    with by_value_if_needed(function):
        return [code, parcels.pack_whole(function)]


def unpickle(load: Load, arrays: Arrays) -> Callable[..., Any]:
    """Return the user's callable: itself when inline, else unpickled from what `pack` made."""
    if load.live is not None:
        return load.live  # type: ignore[no-any-return]
    code, pickled = arrays
    code_serving.install(code)
    return cloudpickle.loads(pickled.tobytes())  # type: ignore[no-any-return]


class FunctionEngine:
    """Runs `function(**inputs)`, which returns the outputs, by name or in order."""

    def __init__(self, function: Callable[..., Any], outputs: Iterable[str] | None) -> None:
        self._function = function
        self._outputs = list(outputs or ["output"])
        names = [
            p.name
            for p in inspect.signature(function).parameters.values()
            if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        ]
        self.signature = Signature(dict.fromkeys(names, _ANY), dict.fromkeys(self._outputs, _ANY))

    def plan(self, feeds: Sequence[str], fetches: Sequence[str]) -> FunctionPlan:
        for name in feeds:
            if name not in self.signature.inputs:
                raise InputError(
                    f"there is no input {name!r}; the function takes {list(self.signature.inputs)}"
                )
        for name in fetches:
            if name not in self._outputs:
                raise InputError(f"there is no output {name!r}; there are {self._outputs}")
        return FunctionPlan(self._function, self._outputs, feeds, fetches)

    def operations(self) -> dict[str, Operation]:
        return {}

    def close(self) -> None:
        pass


class FunctionPlan:
    adoptable = False
    prints = True
    may_wait = True
    changes_state = False  # the state of a function cannot be saved anyway

    def __init__(
        self,
        function: Callable[..., Any],
        outputs: Sequence[str],
        feeds: Sequence[str],
        fetches: Sequence[str],
    ) -> None:
        self._function = function
        self._names = outputs
        self._feeds = feeds
        self._fetches = fetches
        self.inputs = [_ANY for _ in feeds]
        self.outputs = [_ANY for _ in fetches]
        self.slots = range(len(fetches))

    def run(self, arrays: Arrays) -> Sequence[np.ndarray]:
        # The arguments are views of shared memory, and the function may keep them: copy.
        given = {name: array.copy() for name, array in zip(self._feeds, arrays, strict=True)}
        result = self._function(**given)
        if not isinstance(result, Mapping):
            values = result if len(self._names) > 1 else [result]
            if not isinstance(values, Sequence | np.ndarray) or len(values) != len(self._names):
                raise ModelError(f"the function must return {list(self._names)}, not {result!r}")
            result = dict(zip(self._names, values, strict=True))
        missing = [name for name in self._fetches if name not in result]
        if missing:
            raise ModelError(f"the function returned {list(result)}, without {missing}")
        return [_sendable(name, result[name]) for name in self._fetches]


def _sendable(name: str, value: Any) -> np.ndarray:
    try:
        return plain_arrays.anything(value)
    except ValueError as error:
        raise ModelError(f"the output {name!r} of the function cannot be sent: {error}") from None
