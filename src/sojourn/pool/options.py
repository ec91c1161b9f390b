"""The options of a registered model, for type checkers and for checks at run time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from sojourn.session.opening import Names


class OpenOptions(TypedDict, total=False):
    """The options of `sojourn.open` that make sense in a pool; `isolation` and `restart` only with
    one value each."""

    isolation: str
    device: str
    signature: str | None
    tags: str | Sequence[str] | None
    inputs: Names
    outputs: Names
    initializer: str | None
    seed: int | None
    deterministic: bool
    restart: None
    untrusted: bool | str
    timeout: float | None
    engine: str | None
    engine_options: Mapping[str, Any] | None
    samples: Sequence[Mapping[str, Any]] | None
    tolerance: float | None
    shadow: float | None


class ModelOptions(OpenOptions, total=False):
    """The options of `Pool.register` and `Pool.update`."""

    copies: int
    exclusive: bool
    pinned: bool
    keep_seconds: float | None
    memory: int | str | None
    max_runs: int | None
    max_growth: int | str | None


def check(options: Mapping[str, Any]) -> None:
    """Raise an error for options that a registered model cannot have."""
    known = ModelOptions.__annotations__.keys()
    for option, value in options.items():
        if option not in known:
            names = ", ".join(sorted(known - {"isolation", "restart"}))
            raise TypeError(f"a model in a pool has no option {option!r}; there are: {names}")
        if option == "isolation" and value != "process":
            raise ValueError(f"a pool's sessions have isolation='process', not {value!r}")
        if option == "restart" and value is not None:
            raise ValueError("restart= is not for a pool's sessions: the pool replaces them")
