"""The limits, device and seed of the calls of an isolated function."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial

from sojourn.kinds import Load
from sojourn.probes import gpu
from sojourn.session.devices import Choice, choose, everything
from sojourn.values import arguments, format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The limits and settings of every call of one isolated function."""

    timeout: float | None = None
    memory: int | str | None = None
    device: str = "auto"
    name: str | None = None
    seed: int | None = None
    deterministic: bool = False

    def __post_init__(self) -> None:
        # Convert to plain numbers: options are sent, even to other machines.
        settle = partial(object.__setattr__, self)
        if self.timeout is not None:
            settle("timeout", arguments.seconds("timeout", self.timeout))
            if self.timeout == 0:
                raise ValueError("timeout must be a positive number of seconds, not 0")
        arguments.device("device", self.device)
        settle("seed", arguments.seed(self.seed, self.deterministic))
        if self.name is not None:
            arguments.text("name", self.name)
        _ = self.memory_bytes  # raises now if it is invalid

    @property
    def memory_bytes(self) -> int | None:
        """The most the worker may allocate."""
        return None if self.memory is None else arguments.memory("memory", self.memory)

    def choice(self) -> Choice:
        """Choose the device of the call. A function may use several, so `"auto"` hides none."""
        wanted, visible = self.device.lower(), os.environ.get("CUDA_VISIBLE_DEVICES")
        gpus = () if wanted == "cpu" else gpu.found()
        return everything(gpus, visible) if wanted == "auto" else choose(wanted, gpus, visible)

    def engine_arguments(self) -> Load:
        """Return what the engine needs before the call."""
        return Load(
            kind="calling",
            seed=self.seed,
            deterministic=self.deterministic,
            device=self.device,
        )

    def __str__(self) -> str:
        parts = []
        if self.timeout is not None:
            parts.append(f"timeout {self.timeout:g} s")
        if self.memory_bytes is not None:
            parts.append(f"memory {format_bytes(self.memory_bytes)}")
        if self.device != "auto":
            parts.append(f"on {self.device}")
        if self.seed is not None:
            parts.append(f"seed {self.seed}")
        if self.deterministic:
            parts.append("deterministic")
        return ", ".join(parts)
