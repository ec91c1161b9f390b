"""How one model is served: what a configuration may say of it, checked once."""

from __future__ import annotations

import math
import re
from typing import Any, Literal

import msgspec

from sojourn.service.versions import Choice, parse_choice
from sojourn.values import arguments

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_FOR_POOL = (
    "copies", "pinned", "memory", "device", "engine", "untrusted", "signature", "tags", "inputs",
    "outputs", "max_runs", "max_growth",
)  # fmt: skip
_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(what: str, value: float | str) -> float:
    """Seconds: a number of them, or text such as `"5m"` or `"1h30m"`. It may be negative.

    >>> parse_duration("timeout", "1h30m")
    5400.0
    """
    if isinstance(value, str):
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
        raise ValueError(f"{what} must be a number of seconds or a duration, not {value!r}")
    return float(value)


def keep_seconds(keep_alive: float | str | None) -> float | None:
    """How long an idle model stays, as the pool counts it. A negative `keep_alive` is for ever, 0
    until nobody uses it, None as long as the pool says.

    >>> keep_seconds("5m"), keep_seconds(-1), keep_seconds(0)
    (300.0, inf, 0.0)
    """
    if keep_alive is None:
        return None
    seconds = parse_duration("keep_alive", keep_alive)
    return math.inf if seconds < 0 else seconds


class ModelRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model: where it is and how it is served."""

    path: str = ""  # a model, or a folder of versions; empty: registered in the pool already
    versions: str | list[int] = "latest"  # "latest", "latest 2", "all", or their numbers
    labels: dict[str, int] = {}  # names for versions, as clients ask for them
    load: Literal["lazy", "eager"] = "lazy"  # when it is first asked for, or when the server starts
    warm_up: bool = True  # run once before requests get it, where it is loaded ahead of them
    keep_alive: float | str | None = None  # how long it stays idle: seconds, "5m", 0, or -1
    pinned: bool = False  # never closed to make room for others
    memory: int | str | None = None  # reserved for a copy, and the most it may allocate
    device: str = "auto"
    engine: str | None = None
    copies: int = 1
    untrusted: bool = False  # loaded and run in the sandbox
    timeout: float | str | None = None  # for one request
    load_timeout: float | str | None = None
    max_batch: int = 64  # rows that may run together; 1: each request by itself
    max_queue: int = 1024  # requests that may wait
    pure: bool = False  # steps change nothing, so that one whose worker died may run again
    signature: str | None = None
    tags: list[str] | None = None
    inputs: dict[str, str] | list[str] | None = None  # tensors of a graph that has no signature
    outputs: dict[str, str] | list[str] | None = None
    max_runs: int | None = None
    max_growth: int | str | None = None

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
        for label, version in self.labels.items():
            arguments.whole(f"the version of label {label!r}", version)
        arguments.device("device", self.device)

    @property
    def choice(self) -> Choice:
        """Which versions are served."""
        return parse_choice(self.versions)

    @property
    def timeout_seconds(self) -> float | None:
        """The most that one request may take."""
        return None if self.timeout is None else parse_duration("timeout", self.timeout)

    def for_pool(self) -> dict[str, Any]:
        """Its options for `Pool.register`."""
        found: dict[str, Any] = {
            name: getattr(self, name)
            for name in _FOR_POOL
            if getattr(self, name) not in (None, False)
        }
        found["keep_seconds"] = keep_seconds(self.keep_alive)
        if self.load_timeout is not None:
            found["timeout"] = parse_duration("load_timeout", self.load_timeout)
        return found
