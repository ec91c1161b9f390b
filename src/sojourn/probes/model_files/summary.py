"""What a model contains, as plain frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from sojourn.values import Signature, TensorSpec, format_bytes

Severity = Literal["danger", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a user should know before loading. A `danger` touches files or runs code."""

    severity: Severity
    what: str  # "writes files", "runs code", ...
    name: str  # the op, layer or file
    where: str = ""  # "when loading", "signature serving_default", ...
    detail: str = ""
    count: int = 1

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        where = f", {self.where}" if self.where else ""
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.what}: {self.name}{times}{where}{detail}"


@dataclass(frozen=True, slots=True)
class Weight:
    """One saved variable."""

    name: str
    spec: TensorSpec
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """What is in a model, by reading it; nothing was loaded."""

    path: str
    kind: str  # "SavedModel", "Keras file", "frozen graph", "checkpoint", "ONNX model" and so on
    file_bytes: int
    made_with: str = ""
    tags: tuple[str, ...] = ()
    signatures: Mapping[str, Signature] = field(default_factory=dict)
    ops: Mapping[str, int] = field(default_factory=dict)  # graph and functions together
    functions: int = 0
    layers: Mapping[str, int] = field(default_factory=dict)
    weights: tuple[Weight, ...] = ()
    weight_bytes: int = 0
    assets: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    unchecked: tuple[str, ...] = ()  # what it does not tell, and why
    unread: tuple[str, ...] = ()  # what is in it and was not looked at: it may be anything

    @property
    def is_dangerous(self) -> bool:
        """Whether anything in it touches files or the network, or runs code."""
        return any(finding.severity == "danger" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**asdict(self), "is_dangerous": self.is_dangerous}

    def __str__(self) -> str:
        parts = [f"{self.kind}, {format_bytes(self.file_bytes)}"]
        if self.ops:
            parts.append(f"{sum(self.ops.values())} ops of {len(self.ops)} kinds")
        if self.layers:
            parts.append(f"{sum(self.layers.values())} layers")
        dangers = sum(finding.severity == "danger" for finding in self.findings)
        parts.append(f"{dangers} dangers" if dangers != 1 else "1 danger")
        return f"{self.path}: " + ", ".join(parts)
