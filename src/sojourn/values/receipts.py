"""Measured values: the receipt of a closed session, and the footprint of an open one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sojourn.values import html
from sojourn.values.amounts import format_bytes, format_seconds


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a session holds at one moment, measured by the kernel and the driver."""

    host_bytes: int
    peak_bytes: int = 0
    device_bytes: Mapping[str, int] = field(default_factory=dict)

    @property
    def held_bytes(self) -> int:
        """The bytes on the host and on all devices together."""
        return self.host_bytes + sum(self.device_bytes.values())


@dataclass(frozen=True, slots=True)
class Residue:
    """What is left after a close. A residue with nothing in it is false."""

    processes: tuple[int, ...] = ()
    segments: int = 0
    descriptors: int = 0
    host_bytes: int = 0
    device_bytes: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(
            self.processes
            or self.segments
            or self.descriptors
            or self.host_bytes
            or any(self.device_bytes.values())
        )

    def __str__(self) -> str:
        if not self:
            return "nothing left behind"
        parts = []
        if self.processes:
            parts.append("processes " + ", ".join(map(str, self.processes)))
        if self.segments:
            parts.append(f"{self.segments} shared segments")
        if self.descriptors:
            parts.append(f"{self.descriptors} descriptors")
        if self.host_bytes:
            parts.append(f"{format_bytes(self.host_bytes)} of host memory")
        parts += [f"{format_bytes(n)} on {name}" for name, n in self.device_bytes.items() if n]
        return "left behind: " + "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Receipt:
    """The account of a session's stay in memory, returned by `close()`. It outlives the session.

    Bytes are measured, never computed from what was requested: `held_bytes` just before the end,
    `returned_bytes` after the worker has been reaped.
    """

    session: str
    held_bytes: int
    returned_bytes: int
    peak_bytes: int
    seconds: float
    runs: int
    residue: Residue = field(default_factory=Residue)
    held_on_device: Mapping[str, int] = field(default_factory=dict)
    returned_on_device: Mapping[str, int] = field(default_factory=dict)
    how: str = "closed"
    note: str = ""
    node: str = ""  # of a cluster, on which the session was

    @property
    def clean(self) -> bool:
        """Whether nothing is left behind."""
        return not self.residue

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {**asdict(self), "clean": self.clean}

    def __str__(self) -> str:
        text = (
            f"{self.how} in {format_seconds(self.seconds)}: {format_bytes(self.returned_bytes)} of "
            f"{format_bytes(self.held_bytes)} returned, {self.residue}"
        )
        for device, held in self.held_on_device.items():
            back = self.returned_on_device.get(device, 0)
            text += f", {format_bytes(back)} of {format_bytes(held)} on {device}"
        if self.node:
            text += f", on node {self.node}"
        return f"{text} ({self.note})" if self.note else text

    def _repr_html_(self) -> str:
        colour = html.GOOD if self.clean else html.BAD
        held = self.held_bytes + sum(self.held_on_device.values())
        returned = self.returned_bytes + sum(self.returned_on_device.values())
        rows = [
            ("returned", f"{format_bytes(self.returned_bytes)} of {format_bytes(self.held_bytes)}"),
            *(
                (
                    device,
                    f"{format_bytes(self.returned_on_device.get(device, 0))} of "
                    f"{format_bytes(count)}",
                )
                for device, count in self.held_on_device.items()
            ),
            ("peak", format_bytes(self.peak_bytes)),
            ("runs", str(self.runs)),
            (self.how, f"in {format_seconds(self.seconds)}"),
            ("note", self.note),
        ]
        return html.card(
            "receipt",
            self.session,
            (str(self.residue), colour),
            html.bar(returned / held if held else 1.0, colour),
            html.facts(rows),
        )
