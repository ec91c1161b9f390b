"""Measure contestants in turns, so that any disturbance of the machine affects them all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sojourn.values import format_bytes, format_seconds


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: what was measured, against what, and the bar it has to meet."""

    work: str
    value: float
    against: str = ""
    baseline: float = 0.0
    bar: float | None = None  # upper limit of the ratio (of the value, without a baseline)
    unit: str = "s"
    note: str = ""
    samples: tuple[float, ...] = field(default=(), repr=False)

    @property
    def ratio(self) -> float | None:
        """The value divided by the baseline, None without a baseline."""
        return self.value / self.baseline if self.baseline else None

    @property
    def meets_bar(self) -> bool | None:
        """Whether the row meets its bar, None without a bar."""
        if self.bar is None:
            return None
        return (self.value if self.ratio is None else self.ratio) <= self.bar

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        plain = asdict(self)
        del plain["samples"]
        return {**plain, "ratio": self.ratio, "meets_bar": self.meets_bar}

    def shown(self, amount: float) -> str:
        """Format an amount in this row's unit."""
        if self.unit == "bytes":
            return format_bytes(int(amount))
        return format_seconds(amount) if self.unit == "s" else f"{amount:g} {self.unit}"


def in_turns(
    contestants: Mapping[str, Callable[[], Any]],
    *,
    rounds: int,
    calls: int = 1,
    warm_up: int = 0,
) -> dict[str, list[float]]:
    """Return the seconds of every call by contestant; they take turns round by round."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    clock = time.perf_counter
    for contestant in contestants.values():
        for _ in range(warm_up):
            contestant()
    for _ in range(rounds):
        for name, contestant in contestants.items():
            kept = times[name]
            for _ in range(calls):
                started = clock()
                contestant()
                kept.append(clock() - started)
    return times


def p50(times: list[float]) -> float:
    """Return the median."""
    return statistics.median(times)


def percentile(times: list[float], share: float) -> float:
    """Return the value below which this share of the times lies."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
