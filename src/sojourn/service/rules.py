"""How one model is served: the model settings of a configuration, validated once."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from sojourn.service.versions import Choice, parse_choice
from sojourn.session.conversion.candidates import CHOICES
from sojourn.values import arguments

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_LONGEST_DURATION = 64  # characters
_FOR_POOL = (
    "copies", "pinned", "memory", "device", "engine", "untrusted", "signature", "tags", "inputs",
    "outputs", "max_runs", "max_growth",
)  # fmt: skip
_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(what: str, value: object) -> float:
    """Return the seconds of a number, or of text such as `"5m"` or `"1h30m"`. May be negative.

    >>> parse_duration("timeout", "1h30m")
    5400.0
    """
    if isinstance(value, str):
        if len(value) > _LONGEST_DURATION:  # it may be a client's, and very long
            raise ValueError(f"{what} has {len(value)} characters, which is no duration")
        text = value.strip()
        sign, digits = (-1.0, text[1:]) if text.startswith("-") else (1.0, text)
        parts = _DURATION.findall(digits)
        if parts and "".join(number + unit for number, unit in parts) == digits:
            return sign * sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
        try:
            value = float(text)
        except ValueError:
            raise ValueError(
                f"{what} must be a number of seconds or a duration such as '5m', not {value!r}"
            ) from None
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        # A client may send deeply nested lists: these are not shown.
        shown = repr(value) if isinstance(value, int | float) else type(value).__name__
        raise ValueError(f"{what} must be a number of seconds or a duration, not {shown}")
    return float(value)


def keep_seconds(keep_alive: float | str | None) -> float | None:
    """Return how long an idle model stays, for the pool. A negative `keep_alive` means forever, 0
    until nobody uses the model, None the pool's default.

    >>> keep_seconds("5m"), keep_seconds(-1), keep_seconds(0)
    (300.0, inf, 0.0)
    """
    if keep_alive is None:
        return None
    seconds = parse_duration("keep_alive", keep_alive)
    return math.inf if seconds < 0 else seconds


class ModelRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model: where it is and how it is served."""

    path: Annotated[str, Meta(description="a model, or a folder with its versions")] = ""
    versions: Annotated[
        str | list[int], Meta(description="which are served: latest, latest 2, all, or numbers")
    ] = "latest"
    labels: Annotated[dict[str, int], Meta(description="names for versions")] = {}
    load: Annotated[
        str, Meta(description="lazy, by the first request, or eager, when it starts")
    ] = "lazy"
    warm_up: Annotated[bool, Meta(description="run once before requests get it")] = True
    keep_alive: Annotated[
        float | str | None, Meta(description="how long an idle model stays: 300, 5m, 0, -1")
    ] = None
    pinned: Annotated[bool, Meta(description="never closed to make room for others")] = False
    memory: Annotated[
        int | str | None, Meta(description="reserved for a copy, and the most it may allocate")
    ] = None
    device: Annotated[str, Meta(description="auto, cpu, gpu or gpu:1")] = "auto"
    engine: Annotated[
        str | None, Meta(description="tensorflow, onnxruntime, litert or fastest")
    ] = None
    copies: Annotated[int, Meta(description="the most workers of a model")] = 1
    untrusted: Annotated[bool, Meta(description="load and run models in the sandbox")] = False
    timeout: Annotated[float | str | None, Meta(description="the most a request may take")] = None
    load_timeout: Annotated[
        float | str | None, Meta(description="the most that loading may take")
    ] = None
    max_batch: Annotated[int, Meta(description="rows that may run together; 1: no batches")] = 64
    max_queue: Annotated[int, Meta(description="requests that may wait for a model")] = 1024
    pure: Annotated[
        bool, Meta(description="steps change nothing, so that one whose worker died runs again")
    ] = False
    signature: Annotated[str | None, Meta(description="the one for requests that name none")] = None
    tags: Annotated[list[str] | None, Meta(description="of the graph in a SavedModel")] = None
    inputs: Annotated[
        dict[str, str] | list[str] | None, Meta(description="tensors of a graph, by name")
    ] = None
    outputs: Annotated[
        dict[str, str] | list[str] | None, Meta(description="tensors of a graph, by name")
    ] = None
    max_runs: Annotated[int | None, Meta(description="steps until a copy is replaced")] = None
    max_growth: Annotated[
        int | str | None, Meta(description="growth until a copy is replaced, such as 1GiB")
    ] = None

    def __post_init__(self) -> None:
        parse_choice(self.versions)
        keep_seconds(self.keep_alive)
        for what in ("timeout", "load_timeout"):
            value = getattr(self, what)
            if value is not None and parse_duration(what, value) <= 0:
                raise ValueError(f"{what} must be positive, not {value!r}")
        for what in ("memory", "max_growth"):
            value = getattr(self, what)
            if value is not None:
                arguments.memory(what, value)
        for what in ("copies", "max_batch", "max_queue"):
            arguments.whole(what, getattr(self, what))
        if self.max_runs is not None:
            arguments.whole("max_runs", self.max_runs)
        for what, known in (("load", ("lazy", "eager")), ("engine", (None, *CHOICES))):
            if getattr(self, what) not in known:
                listed = ", ".join(filter(None, known))
                raise ValueError(f"{what} must be one of {listed}, not {getattr(self, what)!r}")
        for label, version in self.labels.items():
            arguments.whole(f"labels: the version of {label!r}", version)
        arguments.device("device", self.device)

    @property
    def choice(self) -> Choice:
        """The versions that are served."""
        return parse_choice(self.versions)

    def chosen(self, there: Collection[int]) -> tuple[int, ...]:
        """Return the versions to serve among those that exist; labelled versions are always
        served."""
        labelled = set(self.labels.values()).intersection(there)
        return tuple(sorted(labelled.union(self.choice.among(there))))

    @property
    def timeout_seconds(self) -> float | None:
        """The timeout of one request in seconds; None: no limit."""
        return None if self.timeout is None else parse_duration("timeout", self.timeout)

    @property
    def keep_seconds(self) -> float | None:
        """How long an idle copy stays, in seconds; None: the pool's default."""
        return keep_seconds(self.keep_alive)

    @property
    def names_tensors(self) -> bool:
        """Whether these rules define the inputs and outputs, instead of the model."""
        return self.inputs is not None or self.outputs is not None

    def is_like(self, other: ModelRules) -> bool:
        """Whether a session that was opened by the other rules can be used for these."""
        mine, theirs = self.for_pool(), other.for_pool()
        return {**mine, "keep_seconds": None} == {**theirs, "keep_seconds": None}

    def for_pool(self) -> dict[str, Any]:
        """Return the options for `Pool.register`."""
        found: dict[str, Any] = {
            name: getattr(self, name)
            for name in _FOR_POOL
            if getattr(self, name) not in (None, False)
        }
        found["keep_seconds"] = self.keep_seconds
        if self.load_timeout is not None:
            found["timeout"] = parse_duration("load_timeout", self.load_timeout)
        return found


def as_rules(given: ModelRules | str) -> ModelRules:
    """Return rules as they are; for a path, the default rules with that path."""
    return ModelRules(path=given) if isinstance(given, str) else given
