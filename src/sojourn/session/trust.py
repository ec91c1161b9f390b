"""What an untrusted model may do: read itself and the interpreter's libraries, and compute."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from sojourn.engines.paths import kind_of_path
from sojourn.errors import ModelError
from sojourn.values import arguments

# A model that nobody vouches for gets a limit also when nobody asked for one.
DEFAULT_MEMORY = "4GiB"
BEST_EFFORT = "best-effort"

# What a saver writes beside one another. Whatever else begins with the same name is not the model.
_OF_A_CHECKPOINT = re.compile(r"\.(meta|index|data-\d{5}-of-\d{5})")


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
    """The model and nothing else, as real paths: the sandbox follows no link in them."""
    kind, prefix = kind_of_path(path)
    if os.path.isdir(path):
        # What lies beside the link is then readable, or anything: it may have come with the model.
        if os.path.islink(path):
            raise ModelError(
                f"{path} is a link to {os.path.realpath(path)}: an untrusted folder is opened by "
                "its own path"
            )
        return [os.path.realpath(path)]
    if kind != "metagraph":
        return [os.path.realpath(path)]  # a file that the user has named; no other comes with it
    folder, name = os.path.split(prefix)
    folder = os.path.realpath(folder)
    found = []
    for sibling in sorted(os.listdir(folder)):
        if not sibling.startswith(name) or not _OF_A_CHECKPOINT.fullmatch(sibling[len(name) :]):
            continue
        part = os.path.join(folder, sibling)
        if os.path.islink(part) or not os.path.isfile(part):
            raise ModelError(f"{part} is no plain file, and the checkpoint is untrusted")
        found.append(part)
    return found
