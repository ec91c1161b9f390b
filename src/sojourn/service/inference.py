"""Requests to a model and their answers: the same for every protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sojourn.service.failures import invalid
from sojourn.service.rules import parse_duration


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model as a request names it: the latest version unless a version or a label is given."""

    name: str
    version: int | None = None
    label: str | None = None

    def __str__(self) -> str:
        if self.version is not None:
            return f"Specific({self.name}, {self.version})"
        return f"Latest({self.name})" if self.label is None else f"Label({self.name}, {self.label})"


@dataclass(slots=True)
class Inference:
    """One request: arrays by the names of the signature's inputs. Strings are arrays of bytes."""

    model: ModelRef
    inputs: Mapping[str, np.ndarray]
    outputs: tuple[str, ...] | None = None  # None: all
    signature: str | None = None  # None: the model's default
    deadline: float | None = None  # by time.monotonic(); a request past it is not run
    request_id: str = ""
    keep_alive: float | None = None  # seconds the model stays after it; negative: forever


@dataclass(slots=True)
class Answer:
    """The model's outputs, with the version and signature that were used."""

    model: str
    version: int
    outputs: Mapping[str, np.ndarray] = field(default_factory=dict)
    signature: str = ""  # the signature of the request


def as_array(value: Any) -> np.ndarray:
    """Return one output of a model as an array. From a single string numpy would drop the trailing
    zeros."""
    if isinstance(value, np.ndarray):
        return value
    if not isinstance(value, bytes | str):
        return np.asarray(value)
    array = np.empty((), object)
    array[()] = value
    return array


# A client that sends these expects an answer that it would not get. Other parameters are hints.
_NOT_OFFERED = ("sequence_id", "sequence_start", "sequence_end", "classification")
_NOT_OFFERED_OF_TENSORS = ("classification", "shared_memory_region")


def check_parameters(given: Mapping[str, object], tensor: str = "") -> None:
    """Raise Refused if a KServe request asks for a feature that is not offered here, in its own
    parameters or in those of the input or output named by `tensor`."""
    for name in _NOT_OFFERED_OF_TENSORS if tensor else _NOT_OFFERED:
        if given.get(name):
            of = f"{tensor}: " if tensor else ""
            raise invalid(f"{of}{name} is not offered here")


def keep_alive_of(given: object) -> float | None:
    """Parse a client's `keep_alive`, if it has sent one: seconds, or a duration such as "5m"."""
    if given is None:
        return None
    try:
        return parse_duration("keep_alive", given)
    except (ValueError, OverflowError) as error:
        raise invalid(str(error)) from None
