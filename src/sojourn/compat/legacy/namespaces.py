"""Modules made of layers: our names over TensorFlow's.

A namespace looks a name up in its own names first, then in the modules below it, in order. It never
changes the modules it covers: TensorFlow itself and installed libraries still see the originals.
"""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sojourn.compat.legacy import removed


class Namespace(types.ModuleType):
    """A module that looks a name up in itself, then in `below`.

    If the name was removed from TensorFlow, the error names its replacement.
    """

    def __init__(
        self,
        name: str,
        below: Iterable[Any],
        names: Mapping[str, Any] | None = None,
        lazy: Mapping[str, Callable[[], Any]] | None = None,
        shown_as: str = "",
    ) -> None:
        super().__init__(name)
        self.__dict__["_below"] = tuple(below)
        self.__dict__["_lazy"] = dict(lazy or {})
        self.__dict__["_shown_as"] = shown_as or name
        self.__dict__["__path__"] = []  # so that `import name.sub` is allowed
        self.__dict__.update(names or {})

    def __getattr__(self, name: str) -> Any:
        maker = self.__dict__["_lazy"].get(name)
        if maker is not None:
            value = maker()
            self.__dict__[name] = value
            return value
        for module in self.__dict__["_below"]:
            try:
                return getattr(module, name)
            except AttributeError:
                continue
        path = f"{self.__dict__['_shown_as']}.{name}"
        if name.startswith("__") or removed.advice(path) is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        raise removed.RemovedName(removed.describe(path), name=name)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)  # tells mypy that any name may be set

    def __dir__(self) -> list[str]:
        names = {n for n in self.__dict__ if n not in ("_below", "_lazy", "_shown_as")}
        names.update(self.__dict__["_lazy"])
        for module in self.__dict__["_below"]:
            names.update(dir(module))
        return sorted(names)

    @property
    def __all__(self) -> list[str]:
        return [name for name in dir(self) if not name.startswith("_")]


def names_of(module: Any, names: str) -> dict[str, Any]:
    """Return these names of `module` with their values, for the globals of another module."""
    return {name: getattr(module, name) for name in names.split()}


def adopt(names: dict[str, Any], *modules: Any) -> None:
    """Add the public classes and functions that `modules` define to `names`, a module's globals."""
    for module in modules:
        names |= {
            name: value
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
        }


def limit_star(part: Any) -> None:
    """Make `from part import *` leave out the modules that a part of contrib itself imports.

    Otherwise it would replace the program's own `tf`.
    """
    own = f"{__package__}.contrib."
    names = [
        name
        for name, value in vars(part).items()
        if not name.startswith("_")
        and (
            not isinstance(value, types.ModuleType)
            or isinstance(value, Namespace)
            or value.__name__.startswith(own)
        )
    ]
    vars(part).setdefault("__all__", names)


def module(name: str) -> Callable[[], Any]:
    """Return a function that imports the module `name`, for a namespace's `lazy`."""
    return lambda: importlib.import_module(name)
