"""What a framework needs of the process that it runs in: one record each, in one table.

`process` calls these functions and knows no framework by name. A new framework is a record here,
and a module that has those of the hooks that it needs, and can be imported without the framework.
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

    name: str  # of its module
    preload: tuple[str, ...] = ()  # our own modules that use it
    hooks: str = ""  # the module that has them
    defers: tuple[str, ...] = ()  # what it imports and hardly ever uses
    idle_seconds: float = 60.0  # for how long its zygote stays without a worker

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
    """For how long a zygote with these frameworks stays without a worker."""
    if chosen := os.environ.get("SOJOURN_ZYGOTE_SECONDS"):
        try:
            return max(0.0, float(chosen))
        except ValueError:
            raise ValueError(f"SOJOURN_ZYGOTE_SECONDS must be a number, not {chosen!r}") from None
    return max((FRAMEWORKS[name].idle_seconds for name in frameworks), default=60.0)


# -- in the zygote -----------------------------------------------------------------------------


def import_frameworks(names: Iterable[str]) -> dict[str, str]:
    """Import them and what of ours uses them; their versions, empty for what is not installed."""
    found: dict[str, str] = {}
    for name in names:
        found[name] = ""
        if importlib.util.find_spec(name) is None:
            continue
        with deferred(FRAMEWORKS[name].defers):
            for ours in FRAMEWORKS[name].preload:  # first: they may know how it is to be imported
                importlib.import_module(ours)
            module = importlib.import_module(name)
        found[name] = str(getattr(module, "__version__", "unknown"))
    for hook in _hooks("prepare_forks", only_loaded=True):
        hook()
    return found


# -- in a worker, before a model is loaded -----------------------------------------------------


def limit_memory(limit_bytes: int) -> None:
    """Have every framework refuse by itself what the limit does not allow, loaded or not."""
    for hook in _hooks("limit_memory"):
        hook(limit_bytes)


def throws_unprepared() -> bool:
    """Whether a framework here cannot take it that C++ throws when there is no more memory."""
    return any(hook() for hook in _hooks("throws_unprepared", only_loaded=True))


def distrust() -> None:
    """Have frameworks load no code that comes with a model from now on."""
    for hook in _hooks("distrust", only_loaded=True):
        hook()


def warm() -> None:
    """Have frameworks do now what the first model would wait for."""
    for hook in _hooks("warm", only_loaded=True):
        hook()


# -- in the client -----------------------------------------------------------------------------


def revive(code: int, message: str, node: str | None, graph: Any) -> BaseException | None:
    """A framework's own exception for a status code, where the framework is loaded."""
    for hook in _hooks("revive", only_loaded=True):
        error: BaseException = hook(code, message, node, graph)
        return error
    return None


def limit_reached(message: str, node: str | None, graph: Any) -> BaseException | None:
    """BudgetExceeded that is a framework's own exception too, where the framework is loaded."""
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
