"""What an engine is told about the model that it loads."""

from __future__ import annotations

from typing import Any

import msgspec

from sojourn.values import TensorSpec


class Packed(msgspec.Struct, frozen=True):
    """A live model as files, whose contents come as arrays; names by those used in the files."""

    files: list[str]
    inputs: dict[str, str]
    outputs: dict[str, str]


class Load(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model and how to load it. Crosses to the worker as it is, but for `live`."""

    kind: str
    path: str = ""
    signature: str | None = None
    tags: list[str] | None = None
    inputs: dict[str, str | TensorSpec] | None = None
    outputs: dict[str, str] | None = None
    initializer: list[str] | None = None
    seed: int | None = None
    deterministic: bool = False
    device: str = "auto"
    gpu_bytes: int | None = None
    threads: int | None = None  # that one step may use; as many as there are cores
    jit_compile: bool = False
    untrusted: bool = False
    packed: Packed | None = None  # a live model that was packed by the caller
    config: bytes = b""  # of a drop-in session
    sha256: str = ""  # of the file, if it was converted from a model of TensorFlow
    most: float | None = None  # the largest float that it takes; None for any, NaN too
    is_shown: bool = False  # by its outputs, that an input was not finite
    only_some: bool = False  # it takes no input without elements
    # Of one that is run by two engines: the models, and who runs what.
    parts: list[Load] | None = None
    most_rows: int = 0  # what has more rows is run by the second
    every: int = 0  # of so many steps one is run by both
    tolerance: float = 0.0  # within which they must agree
    live: Any = None  # an object of the caller's, for an inline session

    @property
    def is_converted(self) -> bool:
        """Whether it was made of a model of TensorFlow, and proven to agree."""
        return bool(self.sha256)
