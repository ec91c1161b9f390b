"""The steps of a pool's copies, by model, for metrics."""

from __future__ import annotations

from dataclasses import dataclass, field

from sojourn.pool.leasing import Resident
from sojourn.probes.status_page import BUCKETS, NANOSECONDS


@dataclass(slots=True)
class Steps:
    """The steps of some copies, added up from their status pages."""

    histogram: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    seconds: float = 0.0

    def add(self, resident: Resident) -> None:
        page = resident.stay.lifecycle.page
        self.histogram = [a + b for a, b in zip(self.histogram, page.histogram(), strict=True)]
        self.seconds += page.words[NANOSECONDS] / 1e9

    def copy(self) -> Steps:
        return Steps(self.histogram, self.seconds)
