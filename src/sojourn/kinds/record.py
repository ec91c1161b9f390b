"""The record of one kind of model."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sojourn.errors import ModelError
from sojourn.kinds.load import Load

OPTIONS = ("signature", "tags", "inputs", "outputs", "initializer")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of model. An empty field means that the kind does not have it."""

    name: str
    what: str  # its name in messages, such as "a SavedModel"
    loader: str = ""  # "module:Class", whose `load(load, arrays)` returns an engine
    reader: str = ""  # "module:function", which returns a ModelSummary without loading anything
    options: tuple[str, ...] = ()  # the options of `open` that it uses
    framework: str = "tensorflow"  # imported before the worker is forked
    extra: str = "tensorflow"  # the extra of sojourn that installs the framework
    takes_spares: bool = True  # it can be loaded where its framework has already run
    uses_gpu: bool = True
    # A file is recognised by its name and by its first bytes.
    suffixes: tuple[str, ...] = ()
    begins: Callable[[bytes], bool] | None = None
    name_decides: bool = False  # whatever its first bytes are
    needs_suffix: bool = False  # its loader depends on the file's name
    files: str = "sojourn.kinds.belongings:one_file"  # "module:function" listing the model's files
    instead: str = ""  # why it cannot be opened, and what to do instead

    @property
    def engine(self) -> str:
        """The name of the engine that computes it."""
        return "litert" if self.framework == "ai_edge_litert" else self.framework

    def import_loader(self) -> Any:
        """Import and return its loader, which also imports its framework."""
        return _import(self.loader)

    def import_reader(self) -> Any:
        """Import and return its reader."""
        return _import(self.reader)

    def files_of(self, path: str) -> list[str]:
        """Return the files that an untrusted model of this kind may read."""
        found: list[str] = _import(self.files)(path)
        return found

    def refuse_what_is_ignored(self, load: Load) -> None:
        """Raise ModelError if an option is set that a model of this kind does not use."""
        for name in OPTIONS:
            if getattr(load, name) is not None and name not in self.options:
                takes = f"takes {' and '.join(self.options)} only" if self.options else "takes none"
                raise ModelError(f"{name}= is not for {self.what}, which {takes}")


def _import(named: str) -> Any:
    module, _, name = named.partition(":")
    return getattr(importlib.import_module(module), name)
