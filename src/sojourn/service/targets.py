"""The targets of requests: a signature with some of its outputs, and how arrays are fed to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sojourn.service.failures import Refused, invalid
from sojourn.service.proving import Proof
from sojourn.service.signatures import CallSignature
from sojourn.session.feeding import ANY, as_array
from sojourn.values import TensorSpec
from sojourn.values.dtypes import BY_NAME

_SHAPES_REMEMBERED = 64  # valid shapes remembered for each input


class Target:
    """A signature with the outputs to fetch, as long as its version is served."""

    def __init__(self, call: CallSignature, outputs: Sequence[str]) -> None:
        self.names = tuple(outputs)
        self.fetches = tuple(call.outputs[name] for name in self.names)
        self.feeds = tuple(call.inputs[name] for name in call.spec.inputs)
        self._inputs = [
            (name, spec, BY_NAME.get(spec.dtype), set[tuple[int, ...]]())
            for name, spec in call.spec.inputs.items()
        ]
        self._call = call
        # Requests can be joined only if the first dimension of every input and output is open: then
        # it is the number of rows.
        self.has_rows = bool(self.feeds) and all(
            _has_rows(spec)
            for spec in (
                *call.spec.inputs.values(),
                *(call.spec.outputs[name] for name in self.names),
            )
        )
        self.is_pure: bool | None = None  # known once its step has been planned
        self.proof = Proof(len(self.feeds))

    def arrays(self, given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Return the arrays to feed, in order, each checked against its input."""
        found: list[np.ndarray] = []
        for name, spec, dtype, shapes in self._inputs:
            value = given.get(name)
            if value is None:
                raise self._wrong(f"input {name!r} is missing{self._unknown(given)}")
            if (
                type(value) is np.ndarray
                and value.dtype == dtype
                and dtype is not None
                and (value.shape in shapes or spec.accepts(value.shape))
            ):
                found.append(value)
                if len(shapes) < _SHAPES_REMEMBERED:
                    shapes.add(value.shape)
            else:
                found.append(as_array(name, spec, value))
        if len(found) != len(given):
            raise self._wrong(self._unknown(given).removeprefix(", and "))
        return found

    def _unknown(self, given: Mapping[str, np.ndarray]) -> str:
        unknown = sorted(given.keys() - self._call.spec.inputs.keys())
        return f", and there is no input {unknown[0]!r}" if unknown else ""

    def key(self, arrays: Sequence[np.ndarray]) -> tuple[Any, int]:
        """Return the key that joinable requests share, or None if the request cannot be joined, and
        its number of rows."""
        if not arrays or arrays[0].ndim == 0:
            return None, 1
        rows = arrays[0].shape[0]
        if not self.has_rows or rows == 0:
            return None, rows or 1
        key: list[Any] = [self]  # dtypes are fixed by the signature
        for array in arrays:
            shape = array.shape
            if shape[0] != rows:
                return None, rows
            key.append(shape[1:])
        return tuple(key), rows

    def _wrong(self, what: str) -> Refused:
        return invalid(f"{what}; signature {self._call.name!r} is {self._call.spec}")


def _has_rows(spec: TensorSpec) -> bool:
    return (
        spec.dtype != ANY and bool(spec.shape) and spec.shape is not None and spec.shape[0] is None
    )


class Targets:
    """The targets of one version. Their number is limited: outputs are fetched in the signature's
    order, and if clients request too many different selections, all outputs are fetched."""

    MOST = 64

    def __init__(self) -> None:
        self._found: dict[tuple[str | None, tuple[str, ...] | None], Target] = {}
        self._by_names: dict[tuple[str, tuple[str, ...]], Target] = {}

    def find(self, signature: str | None, outputs: tuple[str, ...] | None) -> Target | None:
        """Return the known target for this selection, if any."""
        return self._found.get((signature, outputs))

    def choose(
        self, call: CallSignature, signature: str | None, outputs: tuple[str, ...] | None
    ) -> Target:
        """Return the target for these outputs of a signature; for all outputs if none are named."""
        known = call.spec.outputs
        for name in outputs or ():
            if name not in known:
                raise invalid(
                    f"there is no output {name!r}; signature {call.name!r} is {call.spec}",
                )
        wanted = tuple(name for name in known if not outputs or name in outputs)
        if len(self._by_names) >= self.MOST and (call.name, wanted) not in self._by_names:
            wanted = tuple(known)
        target = self._by_names.get((call.name, wanted))
        if target is None:
            target = self._by_names[call.name, wanted] = Target(call, wanted)
        if len(self._found) > 4 * self.MOST:
            self._found.clear()
        if outputs is None or len(outputs) <= len(known):  # else it repeats some names
            self._found[signature, outputs] = target
        return target
