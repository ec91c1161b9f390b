"""What a call may take, and where it runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from sojourn.values import arguments, format_bytes, parse_bytes


@dataclass(frozen=True, slots=True)
class Options:
    """The limits and settings of every call of one isolated function."""

    timeout: float | None = None
    memory: int | str | None = None
    device: str = "auto"
    name: str | None = None
    seed: int | None = None
    deterministic: bool = False

    def __post_init__(self) -> None:
        if self.timeout is not None and arguments.seconds("timeout", self.timeout) == 0:
            raise ValueError(f"timeout is a number of seconds above 0, not {self.timeout!r}")
        arguments.device("device", self.device)
        if self.seed is not None and (
            isinstance(self.seed, bool) or not isinstance(self.seed, Integral) or self.seed < 0
        ):
            raise ValueError(f"a seed is a whole number from 0, not {self.seed!r}")
        if self.name is not None:
            arguments.text("a name", self.name)
        if self.memory is not None:
            arguments.memory("memory", self.memory)

    @property
    def memory_bytes(self) -> int | None:
        """The most the worker may allocate."""
        return None if self.memory is None else parse_bytes(self.memory)

    def environment(self) -> dict[str, str]:
        """Variables that show the worker the right device. CUDA reads them at its first use."""
        kind, _, which = self.device.partition(":")
        if kind.lower() == "cpu":
            return {"CUDA_VISIBLE_DEVICES": "-1"}
        if not which:
            return {}
        if not which.isdigit():
            full = which if which.upper().startswith("GPU-") else f"GPU-{which}"
            return {"CUDA_VISIBLE_DEVICES": full}
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if visible:
            # Numbers count among the devices that this process sees.
            shown = visible.split(",")
            which = shown[int(which)] if int(which) < len(shown) else "-1"
        return {"CUDA_VISIBLE_DEVICES": which}

    def engine_arguments(self) -> dict[str, Any]:
        """What the engine is told before the call."""
        return {
            "kind": "calling",
            "seed": None if self.seed is None else int(self.seed),
            "deterministic": self.deterministic,
            "device": self.device,
        }

    def __str__(self) -> str:
        parts = []
        if self.timeout is not None:
            parts.append(f"timeout {self.timeout:g} s")
        if self.memory is not None:
            parts.append(f"memory {format_bytes(parse_bytes(self.memory))}")
        if self.device != "auto":
            parts.append(f"on {self.device}")
        if self.seed is not None:
            parts.append(f"seed {self.seed}")
        if self.deterministic:
            parts.append("deterministic")
        return ", ".join(parts)
