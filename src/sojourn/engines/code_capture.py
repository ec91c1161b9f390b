"""In the caller: the code of the user's modules as it was imported, sent along with every call.

A worker imports modules by name, and their files may have changed since the caller imported them.
So the source of every module of the user's is kept when it is imported (`sojourn.imported`), and
workers run that. Of one that was imported before sojourn, what its file has when sojourn sees it:
whether that is what was imported shows in the functions in memory; if it is not, the worker
refuses to import the module. Installed packages and the standard library stay with the disk.
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
_others: dict[str, int] = {}  # modules that are none of the user's, by their identities
# Names and identities of all modules at the last look, and which of them may be the user's.
_looked: tuple[tuple[tuple[str, ...], tuple[int, ...]], list[str]] = ((), ()), []


def note() -> None:
    """Keep the source of the modules that are loaded now, before their files change."""
    with _lock:
        for name, module, file in _users_modules():
            _keep(name, module, file)


def packed(function: Callable[..., Any]) -> np.ndarray:
    """The code that a worker needs for a function, for `code_serving.install`."""
    global _last
    modules = dict(served())
    with _lock:
        for name, module, file in _users_modules():
            modules[name] = _as_imported(name, module, file)
            modules.update((parent.name, parent) for parent in _namespaces_above(name))
        bundle = Bundle(list(modules.values()), _cells(function))
        # Nearly always the same as for the call before, and it may be megabytes, which would stay
        # in the arena of each thread that packs them.
        if _last is None or _last[0] != bundle:
            _last = bundle, np.frombuffer(packed_bundle(bundle), np.uint8)
        return _last[1]


def is_kept(module: ModuleType) -> bool:
    """Whether a worker gets this module from us."""
    return _file_of(module.__name__, module) is not None


# -- which modules -----------------------------------------------------------------------------


def _users_modules() -> list[tuple[str, ModuleType, str]]:
    """Name, module and file of those that can change while they are in use.

    The thousands of others are gone through only when there are new ones among them.
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
    """Where a module of the user's came from; None if it is none of theirs, or has no file."""
    if not isinstance(module, ModuleType):
        return None
    facts = vars(module)  # not attributes: some modules import more when asked for one
    file, spec = facts.get("__file__"), facts.get("__spec__")
    if not isinstance(file, str) or not imported.can_change(file):
        return None
    is_imported = spec is not None and spec.name == name and _has_parent(name)
    return file if is_imported or name == PROGRAM else None


def _has_parent(name: str) -> bool:
    parent = name.rpartition(".")[0]
    return not parent or parent in sys.modules


def _namespaces_above(name: str) -> Iterator[ModuleCode]:
    """Packages without a file of their own, whose folder a worker would look for."""
    while name := name.rpartition(".")[0]:
        facts = vars(sys.modules[name])
        if facts.get("__file__") is None and "__path__" in facts:
            yield ModuleCode(name, search=list(facts["__path__"]))


# -- what they were ----------------------------------------------------------------------------


_kept: dict[str, Version] = {}
_edited: dict[str, Version] = {}  # whose files have changed since


def _keep(name: str, module: ModuleType, file: str) -> Version:
    kept = _kept.get(name)
    if kept is None or not kept.is_of(module):
        text = imported.take(name, file)
        kept = _kept[name] = Version(name, module, file, text)
    return kept


def _as_imported(name: str, module: ModuleType, file: str) -> ModuleCode:
    loader = getattr(module.__spec__, "loader", None)
    if isinstance(loader, CallersLoader):
        return loader.module  # we are a worker
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
    """What the file contains by now. It may be asked for with each call of a sweep."""
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
    """The text of notebook cells and prompts, which a worker cannot find on the disk."""
    if getattr(plain(function), "__module__", None) != PROGRAM:
        return {}
    found: dict[str, str] = {}
    lines_left = _MAX_CELL_LINES
    for filename, entry in reversed(list(linecache.cache.items())):
        # Entries of real files carry a time of modification. Generated code has no source.
        if len(entry) != 4 or entry[1] is not None or " generated " in filename:
            continue
        lines_left -= len(entry[2])
        if lines_left < 0:
            break
        found[filename] = "".join(entry[2])
    return found


def plain(function: Callable[..., Any]) -> Any:
    """The Python function behind a bound method or a partial."""
    while True:
        inner = getattr(function, "__func__", None) or getattr(function, "func", None)
        if inner is None:
            return function
        function = inner


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()  # a thread that does not exist here may hold the other one


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
