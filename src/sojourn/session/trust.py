"""What an untrusted model may do: read itself and the interpreter's libraries, and compute."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass

from sojourn.values import arguments

# A model that nobody vouches for gets a limit also when nobody asked for one.
DEFAULT_MEMORY = "4GiB"
BEST_EFFORT = "best-effort"


@dataclass(frozen=True, slots=True)
class Confinement:
    """How a worker is closed off; `readable` None means that it is not."""

    readable: list[str] | None = None
    best_effort: bool = False

    @property
    def is_on(self) -> bool:
        """Whether the worker is closed off at all."""
        return self.readable is not None


def confinement(untrusted: bool | str, path: str | None, isolation: str) -> Confinement:
    """What `untrusted=` asks for. `path` is the model's, None if it is no file."""
    if untrusted not in (True, False, BEST_EFFORT):
        raise ValueError(f"untrusted is True, False or {BEST_EFFORT!r}, not {untrusted!r}")
    if not untrusted:
        return Confinement()
    if isolation != "process":
        raise ValueError("an untrusted model runs in a worker of its own, not inline")
    if path is None:
        raise ValueError("untrusted=True is for models in files; code that you pass is your own")
    return Confinement(_files_of(path), untrusted == BEST_EFFORT)


def memory_limit(memory: int | str | None, confined: Confinement) -> int | None:
    """The most the worker may allocate."""
    if memory is None and confined.is_on:
        memory = DEFAULT_MEMORY
    return None if memory is None else arguments.memory("memory", memory)


def _files_of(path: str) -> list[str]:
    """A folder or file as it is; of a checkpoint's prefix, the files that begin with it."""
    if os.path.exists(path):
        return [path, *glob.glob(glob.escape(os.path.splitext(path)[0]) + ".*")]
    return glob.glob(glob.escape(path) + ".*")
