"""What a system must offer to be scored: a stay in which a model can be called.

An adapter is a class with a `stay`: a context manager, written as the system's own documentation
writes it, that opens a model, gives the function that calls it, and closes it. Anything that the
documentation omits for the case of an error (a `finally`, say) the adapter omits too.
It runs in an owner process of its own (`owner.py`), which the suite measures from outside.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

from workload import Model

Call = Callable[[Any], Any]  # a batch of rows in, a batch of probabilities out


class System(ABC):
    """A way to keep a model, use it, and close it."""

    name: ClassVar[str]
    about: ClassVar[str]  # one sentence: what open and close do
    packages: ClassVar[tuple[str, ...]] = ()  # whose versions the table names
    environment: ClassVar[str | None] = None  # a key of environments.PEERS; None: the project's own
    listens: ClassVar[bool] = False  # if so, it needs its own network namespace to be measured

    @abstractmethod
    def stay(self, model: Model) -> AbstractContextManager[Call]:
        """Open the model, give the function that calls it, close it."""

    def prepare(self, folder: Path) -> None:  # noqa: B027 - most need nothing
        """Write the files that `stay` opens. Called once, in a process that is not measured."""

    @property
    def prepared(self) -> Path:
        """The folder that `prepare` has written to."""
        return Path(os.environ["LEAVES_NOTHING_PREPARED"])

    def versions(self) -> dict[str, str]:
        """Return the measured version of each package."""
        return {name: importlib.metadata.version(name) for name in self.packages}


def load(address: str) -> System:
    """Load the system at `module:Class`, or `path/to/file.py:Class` for an adapter of your own."""
    where, _, name = address.rpartition(":")
    if where.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(where).stem, where)
        if spec is None or spec.loader is None:
            raise ImportError(f"no adapter can be loaded from {where}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(where)
    system = getattr(module, name)()
    assert isinstance(system, System), address
    return system
