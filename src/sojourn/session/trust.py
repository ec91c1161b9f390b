"""The permissions of an untrusted model: read its own files and the interpreter's libraries, and
compute."""

from __future__ import annotations

import os
from dataclasses import dataclass

from sojourn.kinds.belongings import plain_file
from sojourn.kinds.paths import Found
from sojourn.values import arguments

# The memory limit of an untrusted model for which no limit was given.
DEFAULT_MEMORY = "4GiB"
BEST_EFFORT = "best-effort"


@dataclass(frozen=True, slots=True)
class Confinement:
    """The confinement of a worker; none if `readable` is None."""

    readable: list[str] | None = None
    best_effort: bool = False

    @property
    def is_on(self) -> bool:
        """Whether the worker is confined at all."""
        return self.readable is not None


def confinement(untrusted: bool | str, found: Found | None, isolation: str) -> Confinement:
    """The confinement that `untrusted=` asks for. `found` is the model; None if it is no file."""
    if untrusted not in (True, False, BEST_EFFORT):
        raise ValueError(f"untrusted must be True, False or {BEST_EFFORT!r}, not {untrusted!r}")
    if not untrusted:
        return Confinement()
    if isolation != "process":
        raise ValueError("an untrusted model runs in a worker of its own, not inline")
    if found is None:
        raise ValueError("untrusted=True is for models in files; code that you pass is your own")
    whole = os.path.realpath(found.path)  # a folder is readable with all its content
    readable = [
        path if path == whole and os.path.isdir(path) else plain_file(path, found.kind.what)
        for path in found.kind.files_of(found.path)
    ]
    return Confinement(readable, untrusted == BEST_EFFORT)


def memory_limit(memory: int | str | None, confined: Confinement) -> int | None:
    """The most bytes that the worker may allocate; None for no limit."""
    if memory is None and confined.is_on:
        memory = DEFAULT_MEMORY
    return None if memory is None else arguments.memory("memory", memory)
