"""Pickle functions by value if a worker could not import their module by name."""

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
    """In this block, pickle the function's module by value if a worker could not import it."""
    name = getattr(code_capture.plain(function), "__module__", None) or ""
    module = sys.modules.get(name)
    if module is None or name == PROGRAM or _can_be_imported(module):
        yield
        return
    with _registering:  # cloudpickle has one list of such modules for the whole process
        if name in cloudpickle.list_registry_pickle_by_value():
            yield
            return
        cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            cloudpickle.unregister_pickle_by_value(module)


def _can_be_imported(module: ModuleType) -> bool:
    """Whether an `import` in another process with the same `sys.path` finds this module."""
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
    """Return the file that a first import of a top-level module would find."""
    for finder in sys.meta_path:  # editable installs add finders of their own
        try:
            spec = finder.find_spec(name, None)
        except (AttributeError, ImportError, ValueError):
            continue
        if spec is not None:
            return spec.origin
    return None


def _after_fork_in_child() -> None:
    global _registering
    _registering = threading.Lock()  # a thread of the parent may have held the old one


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
