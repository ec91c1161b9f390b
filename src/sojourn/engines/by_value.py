"""Modules that a worker could not import by name: their functions travel by value."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import cloudpickle

from sojourn.engines import code_capture
from sojourn.engines.code_serving import PROGRAM

_registering = threading.Lock()


@contextmanager
def by_value_if_needed(function: Callable[..., Any]) -> Iterator[None]:
    """Within the block, the function's module is pickled by value if a worker has to have it so."""
    name = getattr(code_capture.plain(function), "__module__", None) or ""
    module = sys.modules.get(name)
    if module is None or name == PROGRAM or _can_be_imported(module):
        yield
        return
    with _registering:  # the list of such modules is cloudpickle's own, one for the process
        if name in cloudpickle.list_registry_pickle_by_value():
            yield
            return
        cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            cloudpickle.unregister_pickle_by_value(module)


def _can_be_imported(module: ModuleType) -> bool:
    """Whether an `import` elsewhere, with the same path, finds this module."""
    if code_capture.is_kept(module):
        return True
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


def _after_fork_in_child() -> None:
    global _registering
    _registering = threading.Lock()  # a thread that does not exist here may hold the other one


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
