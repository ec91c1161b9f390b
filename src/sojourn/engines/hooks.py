"""What each framework needs from the process that it runs in: a table with one record each.

`process` calls these functions and knows no framework by name. To add a framework, add a record
here and a module with the hooks that it needs, which must be importable without the framework.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sojourn.engines.deferring import deferred


@dataclass(frozen=True, slots=True)
class Framework:
    """What is imported before workers are forked, and where its hooks are."""

    name: str  # the name of its module
    preload: tuple[str, ...] = ()  # sojourn's own modules that use it
    hooks: str = ""  # the module with its hooks
    defers: tuple[str, ...] = ()  # libraries that it imports but hardly ever uses
    idle_seconds: float = 60.0  # how long its zygote stays without a worker

    @property
    def is_loaded(self) -> bool:
        """Whether this process has imported it."""
        return self.name in sys.modules


_TENSORFLOW = Framework(
    "tensorflow",
    preload=(
        "numpy.random",  # the worker seeds it
        "sojourn.engines.builder",
        "sojourn.engines.tensorflow",
        "sojourn.engines.tensorflow_warming",
        "sojourn.engines.keras_model",
        "sojourn.engines.remote_session_functions",
        "sojourn.engines.remote_session",
    ),
    hooks="sojourn.engines.tensorflow_hooks",
    defers=("matplotlib",),
    idle_seconds=600.0,  # it takes seconds to start
)

_ALL = (
    _TENSORFLOW,
    Framework(
        "onnxruntime",
        preload=("sojourn.engines.onnx_model",),
        hooks="sojourn.engines.onnx_hooks",
    ),
    Framework("ai_edge_litert", preload=("sojourn.engines.litert_model",)),
)
FRAMEWORKS = {framework.name: framework for framework in _ALL}
DEFAULT = _TENSORFLOW.name


def chosen_frameworks() -> tuple[str, ...] | None:
    """The frameworks that every zygote imports ahead of time, if the user has chosen any.

    A program that isolates plain functions only can set `SOJOURN_PRELOAD=none`, and its zygote
    starts in a fraction of a second.
    """
    wanted = os.environ.get("SOJOURN_PRELOAD")
    if wanted is None:
        return None
    return tuple(name for name in wanted.split(",") if name in FRAMEWORKS)


def idle_seconds(frameworks: Iterable[str]) -> float:
    """Return how long a zygote with these frameworks stays without a worker, in seconds."""
    if chosen := os.environ.get("SOJOURN_ZYGOTE_SECONDS"):
        try:
            return max(0.0, float(chosen))
        except ValueError:
            raise ValueError(f"SOJOURN_ZYGOTE_SECONDS must be a number, not {chosen!r}") from None
    return max((FRAMEWORKS[name].idle_seconds for name in frameworks), default=60.0)


# -- in the zygote -----------------------------------------------------------------------------


def import_frameworks(names: Iterable[str]) -> dict[str, str]:
    """Import frameworks and sojourn's modules for them; return versions, empty if not installed."""
    found: dict[str, str] = {}
    for name in names:
        found[name] = ""
        if importlib.util.find_spec(name) is None:
            continue
        with deferred(FRAMEWORKS[name].defers):
            for ours in FRAMEWORKS[name].preload:  # first: some prepare the framework's import
                importlib.import_module(ours)
            module = importlib.import_module(name)
        found[name] = str(getattr(module, "__version__", "unknown"))
    for hook in _hooks("prepare_forks", only_loaded=True):
        hook()
    return found


# -- in a worker, before a model is loaded -----------------------------------------------------


def limit_memory(limit_bytes: int) -> None:
    """Make every framework, loaded or not, refuse allocations beyond the limit by itself."""
    for hook in _hooks("limit_memory"):
        hook(limit_bytes)


def throws_unprepared() -> bool:
    """Whether a loaded framework crashes when C++ throws because memory is exhausted."""
    return any(hook() for hook in _hooks("throws_unprepared", only_loaded=True))


def distrust() -> None:
    """Make frameworks refuse to load code that comes with a model, from now on."""
    for hook in _hooks("distrust", only_loaded=True):
        hook()


def warm() -> None:
    """Make frameworks do their one-time work now, so that the first model need not wait for it."""
    for hook in _hooks("warm", only_loaded=True):
        hook()


# -- in the client -----------------------------------------------------------------------------


def revive(code: int, message: str, node: str | None, graph: Any) -> BaseException | None:
    """Return a framework's own exception for a status code; None if no framework is loaded."""
    for hook in _hooks("revive", only_loaded=True):
        error: BaseException = hook(code, message, node, graph)
        return error
    return None


def limit_reached(message: str, node: str | None, graph: Any) -> BaseException | None:
    """Return a BudgetExceeded that is also a framework's own exception; None if none is loaded."""
    for hook in _hooks("limit_reached", only_loaded=True):
        error: BaseException = hook(message, node, graph)
        return error
    return None


def _hooks(name: str, only_loaded: bool = False) -> Iterator[Any]:
    for framework in FRAMEWORKS.values():
        if framework.hooks and (framework.is_loaded or not only_loaded):
            hook = getattr(importlib.import_module(framework.hooks), name, None)
            if hook is not None:
                yield hook
