"""How a function and its arguments are made ready to travel.

Functions of `__main__`, of notebooks and of modules that a worker could not import go by value,
with the globals they use; everything else goes by name, as pickle does it.
"""

from __future__ import annotations

import linecache
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import cloudpickle
import numpy as np

from sojourn.engines import parcels
from sojourn.errors import InputError

_MAX_SOURCE_LINES = 20_000
_registering = threading.Lock()


def pack_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str
) -> list[np.ndarray]:
    """The arrays that carry a whole call. Raises InputError that says what cannot travel."""
    call = (function, args, dict(kwargs), sources_without_files(function))
    try:
        with by_value_if_needed(function):
            return parcels.pack(call)
    except Exception as error:
        culprit = _culprit(function, args, kwargs)
        raise InputError(f"{culprit} of {name!r} cannot be sent to a worker: {error}") from error


def pack_value(value: Any, name: str) -> list[np.ndarray]:
    """The arrays that carry one value for a generator."""
    try:
        return parcels.pack(value)
    except Exception as error:
        raise InputError(f"{value!r} cannot be sent to {name!r}: {error}") from error


def sources_without_files(function: Callable[..., Any]) -> dict[str, list[str]]:
    """The lines of notebook cells and prompts, which a worker cannot find on the disk."""
    code_globals = getattr(_plain(function), "__globals__", {})
    if code_globals.get("__name__") != "__main__":
        return {}
    found: dict[str, list[str]] = {}
    lines_left = _MAX_SOURCE_LINES
    for filename, entry in reversed(list(linecache.cache.items())):
        # Entries of real files carry a time of modification. Generated code is nobody's source.
        if len(entry) != 4 or entry[1] is not None or " generated " in filename:
            continue
        lines_left -= len(entry[2])
        if lines_left < 0:
            break
        found[filename] = list(entry[2])
    return found


@contextmanager
def by_value_if_needed(function: Callable[..., Any]) -> Iterator[None]:
    """Within the block, the function's module goes by value if a worker could not import it."""
    module = sys.modules.get(getattr(_plain(function), "__module__", None) or "")
    if module is None or module.__name__ == "__main__" or _can_be_imported(module):
        yield
        return
    with _registering:  # the list of such modules is cloudpickle's own, one for the process
        if module.__name__ in cloudpickle.list_registry_pickle_by_value():
            yield
            return
        cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            cloudpickle.unregister_pickle_by_value(module)


def _plain(function: Callable[..., Any]) -> Any:
    """The Python function behind a bound method or a partial."""
    while True:
        inner = getattr(function, "__func__", None) or getattr(function, "func", None)
        if inner is None:
            return function
        function = inner


def _can_be_imported(module: ModuleType) -> bool:
    """Whether an `import` elsewhere, with the same path, finds this very module."""
    file = getattr(module, "__file__", None)
    if file is None:
        return module.__name__ in sys.builtin_module_names or hasattr(module, "__path__")
    top = sys.modules.get(module.__name__.partition(".")[0])
    if top is None:
        return False
    if top is not module and getattr(top, "__file__", None) is None:
        return hasattr(top, "__path__")
    origin = _origin(top.__name__)
    return origin is not None and os.path.realpath(origin) == os.path.realpath(top.__file__ or "")


def _origin(name: str) -> str | None:
    """Where an import that has not happened yet would find a top-level module."""
    for finder in sys.meta_path:  # editable installs bring finders of their own
        try:
            spec = finder.find_spec(name, None)
        except (AttributeError, ImportError, ValueError):
            continue
        if spec is not None:
            return spec.origin
    return None


def _culprit(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    named = [(f"argument {i + 1}", value) for i, value in enumerate(args)]
    named += [(f"argument {key!r}", value) for key, value in kwargs.items()]
    for name, value in named:
        try:
            parcels.pack(value)
        except Exception:
            return f"{name} (a {type(value).__name__})"
    return "what the function refers to (its globals, its closure)"
