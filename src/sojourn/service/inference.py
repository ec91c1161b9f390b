"""What is asked of a model, and what it answers: the same for every protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from sojourn.service.failures import Refused, Status
from sojourn.service.rules import parse_duration


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model as a request names it: the latest version unless it names one, or a label."""

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
    outputs: tuple[str, ...] | None = None  # all, unless named
    signature: str | None = None  # the model's own choice, unless named
    deadline: float | None = None  # by time.monotonic(); too late is not run
    request_id: str = ""
    keep_alive: float | None = None  # seconds the model stays after it; negative: for ever


@dataclass(slots=True)
class Answer:
    """What the model gave, and which version of it."""

    model: str
    version: int
    outputs: Mapping[str, np.ndarray] = field(default_factory=dict)


def keep_alive_of(given: object) -> float | None:
    """A client's `keep_alive`, if it has sent one: seconds, or a duration such as "5m"."""
    if given is None:
        return None
    try:
        return parse_duration("keep_alive", given)
    except (ValueError, OverflowError) as error:
        raise Refused(Status.INVALID_ARGUMENT, str(error)) from None
