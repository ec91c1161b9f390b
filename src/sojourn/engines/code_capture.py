"""In the caller: the code of the user's modules as it was imported, sent with every call.

A worker imports modules by name, and their files may have changed since the caller imported them.
So the source of each of the user's modules is kept when it is imported (`sojourn.imported`), and
workers run that source. For a module that was imported before sojourn, the file's content is kept
when sojourn first sees the module. Comparing it with the functions in memory shows whether it is
what was imported; if it is not, the worker refuses to import the module. Installed packages and
the standard library are always read from the disk.
"""

from __future__ import annotations

import linecache
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from sojourn import imported
from sojourn.engines.code_serving import (
    PROGRAM,
    Bundle,
    CallersLoader,
    ModuleCode,
    packed_bundle,
    served,
)
from sojourn.engines.module_versions import Version

_MAX_CELL_LINES = 20_000
_lock = threading.Lock()
_last: tuple[Bundle, np.ndarray] | None = None
_others: dict[str, int] = {}  # name -> id of modules that are not the user's
# Names and ids of all modules at the last scan, and the names of those that may be the user's.
_looked: tuple[tuple[tuple[str, ...], tuple[int, ...]], list[str]] = ((), ()), []


def note() -> None:
    """Keep the source of all modules that are loaded now, before their files change."""
    with _lock:
        for name, module, file in _users_modules():
            _keep(name, module, file)


def packed(function: Callable[..., Any]) -> np.ndarray:
    """Return the code that a worker needs for a function, packed for `code_serving.install`."""
    global _last
    modules = dict(served())
    with _lock:
        for name, module, file in _users_modules():
            modules[name] = _as_imported(name, module, file)
            modules.update((parent.name, parent) for parent in _namespaces_above(name))
        bundle = Bundle(list(modules.values()), _cells(function))
        # The bundle is nearly always the same as in the previous call. It may be megabytes large,
        # and packing it anew would leave them in the malloc arena of each calling thread.
        if _last is None or _last[0] != bundle:
            _last = bundle, np.frombuffer(packed_bundle(bundle), np.uint8)
        return _last[1]


def is_kept(module: ModuleType) -> bool:
    """Whether workers receive this module's code from the caller."""
    return _file_of(module.__name__, module) is not None


# -- which modules -----------------------------------------------------------------------------


def _users_modules() -> list[tuple[str, ModuleType, str]]:
    """Return name, module and file of the modules whose files may change while they are in use.

    The thousands of other modules are scanned only when `sys.modules` has changed.
    """
    global _looked
    modules = dict(sys.modules)
    seen = tuple(modules), tuple(map(id, modules.values()))
    is_known = seen == _looked[0]
    candidates = _looked[1]
    if not is_known:
        candidates = [name for name, module in modules.items() if _others.get(name) != id(module)]
    found = []
    for name in candidates:
        module = modules[name]
        file = _file_of(name, module)
        if file is not None or name == PROGRAM:
            found.append((name, module, file))
        else:
            _others[name] = id(module)
    if not is_known:
        _looked = seen, [name for name, _, _ in found]
    return [(name, module, file) for name, module, file in found if file is not None]


def _file_of(name: str, module: Any) -> str | None:
    """Return the file of one of the user's modules; None if it is not theirs or has no file."""
    if not isinstance(module, ModuleType):
        return None
    facts = vars(module)  # not getattr: some modules import more in their `__getattr__`
    file, spec = facts.get("__file__"), facts.get("__spec__")
    if not isinstance(file, str) or not imported.can_change(file):
        return None
    is_imported = spec is not None and spec.name == name and _has_parent(name)
    return file if is_imported or name == PROGRAM else None


def _has_parent(name: str) -> bool:
    parent = name.rpartition(".")[0]
    return not parent or parent in sys.modules


def _namespaces_above(name: str) -> Iterator[ModuleCode]:
    """Yield the parent packages without a file, so that a worker finds their folders."""
    while name := name.rpartition(".")[0]:
        facts = vars(sys.modules[name])
        if facts.get("__file__") is None and "__path__" in facts:
            yield ModuleCode(name, search=list(facts["__path__"]))


# -- their code as imported --------------------------------------------------------------------


_kept: dict[str, Version] = {}
_edited: dict[str, Version] = {}  # newer versions of modules whose files have changed


def _keep(name: str, module: ModuleType, file: str) -> Version:
    kept = _kept.get(name)
    if kept is None or not kept.is_of(module):
        text = imported.take(name, file)
        kept = _kept[name] = Version(name, module, file, text)
    return kept


def _as_imported(name: str, module: ModuleType, file: str) -> ModuleCode:
    loader = getattr(module.__spec__, "loader", None)
    if isinstance(loader, CallersLoader):
        return loader.module  # this process is a worker, and got the module from its own caller
    kept = _keep(name, module, file)
    if kept.has_changed():
        now = _newer(name, module, file)
        if now.has_replaced(kept, module):
            now.trust()
            _kept[name] = kept = now
        elif not kept.agrees_with(module):
            return _refused(name, file)
    return kept.as_module if kept.was_imported(module) else _refused(name, file)


def _newer(name: str, module: ModuleType, file: str) -> Version:
    """Return the file's current version, cached because each call of a sweep may ask for it."""
    newer = _edited.get(name)
    if newer is None or newer.has_changed() or not newer.is_of(module):
        newer = _edited[name] = Version(name, module, file)
    return newer


def _refused(name: str, file: str) -> ModuleCode:
    return ModuleCode(
        name,
        file,
        refusal=f"module {name!r} is not what {file} contains: the file has changed since the "
        "module was imported, before sojourn saw it. Reload the module or restart the program",
    )


# -- code without files ------------------------------------------------------------------------


def _cells(function: Callable[..., Any]) -> dict[str, str]:
    """Return the text of notebook cells and prompts, which a worker cannot find on the disk."""
    if getattr(plain(function), "__module__", None) != PROGRAM:
        return {}
    found: dict[str, str] = {}
    lines_left = _MAX_CELL_LINES
    for filename, entry in reversed(list(linecache.cache.items())):
        # linecache entries of real files have a modification time. Generated code is skipped too.
        if len(entry) != 4 or entry[1] is not None or " generated " in filename:
            continue
        lines_left -= len(entry[2])
        if lines_left < 0:
            break
        found[filename] = "".join(entry[2])
    return found


def plain(function: Callable[..., Any]) -> Any:
    """Return the Python function behind a bound method or a partial."""
    while True:
        inner = getattr(function, "__func__", None) or getattr(function, "func", None)
        if inner is None:
            return function
        function = inner


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()  # a thread of the parent may have held the old one


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
