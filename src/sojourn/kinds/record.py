"""What is known of one kind of model."""

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
    """One kind of model. What is left out, it does not have."""

    name: str
    what: str  # "a SavedModel", in messages
    loader: str = ""  # "module:Class", whose `load(load, arrays)` gives an engine
    reader: str = ""  # "module:function", which gives a ModelSummary without loading anything
    options: tuple[str, ...] = ()  # which choices of `open` it looks at
    framework: str = "tensorflow"  # what is imported before the worker is forked
    extra: str = "tensorflow"  # of sojourn, which installs it
    takes_spares: bool = True  # loads as well where its framework has run before
    uses_gpu: bool = True
    # How a file is known: by its name, and by its first bytes.
    suffixes: tuple[str, ...] = ()
    begins: Callable[[bytes], bool] | None = None
    name_decides: bool = False  # whatever its first bytes are
    needs_suffix: bool = False  # its loader goes by the name
    files: str = "sojourn.kinds.belongings:one_file"  # "module:function": what belongs to it
    instead: str = ""  # why it cannot be opened, and what to do instead

    @property
    def engine(self) -> str:
        """The name of what computes."""
        return "litert" if self.framework == "ai_edge_litert" else self.framework

    def import_loader(self) -> Any:
        """What loads it, with its framework imported."""
        return _import(self.loader)

    def import_reader(self) -> Any:
        """What reads it without loading it."""
        return _import(self.reader)

    def files_of(self, path: str) -> list[str]:
        """Which files an untrusted one may read."""
        found: list[str] = _import(self.files)(path)
        return found

    def refuse_what_is_ignored(self, load: Load) -> None:
        """Raise ModelError if something is chosen that a model of this kind does not look at."""
        for name in OPTIONS:
            if getattr(load, name) is not None and name not in self.options:
                takes = f"takes {' and '.join(self.options)} only" if self.options else "takes none"
                raise ModelError(f"{name}= is not for {self.what}, which {takes}")


def _import(named: str) -> Any:
    module, _, name = named.partition(":")
    return getattr(importlib.import_module(module), name)
