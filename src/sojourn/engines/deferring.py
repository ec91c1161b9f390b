"""Defer the import of libraries that a framework imports but hardly ever uses.

Keras imports matplotlib for two functions that draw pictures, which takes a sixth of the time until
a program's first session is ready. In the block, importing such a library gives a stand-in. The
first use of the stand-in later, in a worker, imports the library itself.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or sys.modules.get(self.__name__) is self:
            raise AttributeError(f"module {self.__name__!r} is not imported yet: no {name!r}")
        return getattr(importlib.import_module(self.__name__), name)


class _Deferring:
    """A finder and loader that takes precedence for the libraries and their submodules."""

    def __init__(self, libraries: Sequence[str]) -> None:
        self._libraries = frozenset(name for name in libraries if PathFinder.find_spec(name))

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] not in self._libraries:
            return None
        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


@contextlib.contextmanager
def deferred(libraries: Sequence[str]) -> Iterator[None]:
    """In this block, importing these libraries loads stand-ins, unless they are loaded already."""
    finder = _Deferring([name for name in libraries if name not in sys.modules])
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name, it in sys.modules.items() if isinstance(it, _StandIn)]:
            del sys.modules[name]
