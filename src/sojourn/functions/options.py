"""What a call may take, and where it runs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from sojourn.values import format_bytes, parse_bytes

_DEVICE = re.compile(r"auto|cpu|gpu(:[0-9]+|:GPU-[0-9a-fA-F-]+)?")


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
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError(f"a timeout is a positive number of seconds, not {self.timeout!r}")
        if not isinstance(self.device, str) or not _DEVICE.fullmatch(self.device):
            raise ValueError(
                f"a device is 'auto', 'cpu', 'gpu', 'gpu:1' or 'gpu:GPU-<uuid>', not "
                f"{self.device!r}"
            )
        if self.seed is not None and (
            isinstance(self.seed, bool) or not isinstance(self.seed, Integral) or self.seed < 0
        ):
            raise ValueError(f"a seed is a whole number from 0, not {self.seed!r}")
        if self.name is not None and not isinstance(self.name, str):
            raise TypeError(f"a name is a text, not {self.name!r}")
        if self.memory is not None:
            parse_bytes(self.memory)

    @property
    def memory_bytes(self) -> int | None:
        """The most the worker may allocate."""
        return None if self.memory is None else parse_bytes(self.memory)

    def environment(self) -> dict[str, str]:
        """Variables that show the worker the right device. CUDA reads them at its first use."""
        kind, _, which = self.device.partition(":")
        if kind == "cpu":
            return {"CUDA_VISIBLE_DEVICES": "-1"}
        if not which:
            return {}
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if visible and which.isdigit():
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
