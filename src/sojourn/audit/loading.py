"""Runs code when a module is imported, without importing it: TensorFlow stays lazy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def when_loaded(name: str, act: Callable[[ModuleType], None]) -> Callable[[], None]:
    """Call `act` with the module now, or right after its import. Return a function that cancels."""
    module = sys.modules.get(name)
    # A module that is still being imported is incomplete.
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        act(module)
        return lambda: None
    finder = _Finder(name, act)
    sys.meta_path.insert(0, finder)
    return finder.forget


class _Finder(MetaPathFinder):
    def __init__(self, name: str, act: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._act: Callable[[ModuleType], None] | None = act

    def forget(self) -> None:
        self._act = None
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name or self._act is None:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                self._hook(spec)
                return spec
        return None

    def _hook(self, spec: ModuleSpec) -> None:
        loader = spec.loader
        if loader is None:
            return
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            # Keep the original loader object, so that tools can still ask it for source.
            del loader.exec_module
            original(module)
            act = self._act
            self.forget()
            if act is not None:
                act(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
