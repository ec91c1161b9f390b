"""The description of a model that an engine gets in order to load it."""

from __future__ import annotations

from typing import Any

import msgspec

from sojourn.values import TensorSpec


class Packed(msgspec.Struct, frozen=True):
    """A live model packed into files, whose contents are sent as arrays. `inputs` and `outputs`
    map the names in the files to the model's own."""

    files: list[str]
    inputs: dict[str, str]
    outputs: dict[str, str]


class Load(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model and how to load it. Sent to the worker as it is, except for `live`."""

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
    threads: int | None = None  # the number that one step may use; None: one per core
    jit_compile: bool = False
    untrusted: bool = False
    packed: Packed | None = None  # a live model that was packed by the caller
    config: bytes = b""  # of a drop-in session
    sha256: str = ""  # of the file, if it was converted from a model of TensorFlow
    most: float | None = None  # the largest float that it accepts; None: any float, NaN too
    is_shown: bool = False  # its outputs show if an input was not finite
    only_some: bool = False  # it accepts no empty input
    # For a model that is run by two engines: the models, and which engine runs which steps.
    parts: list[Load] | None = None
    most_rows: int = 0  # the second engine runs batches with more rows
    every: int = 0  # one of so many steps is run by both engines
    tolerance: float = 0.0  # within which their results must agree
    live: Any = None  # the caller's own object, for an inline session

    @property
    def is_converted(self) -> bool:
        """Whether it was converted from a TensorFlow model and verified to agree with it."""
        return bool(self.sha256)
