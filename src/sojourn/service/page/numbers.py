"""Conversion of the handler's and the catalogue's numbers to those of the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sojourn.service.page.points import Counts
from sojourn.service.page.snapshot import Version
from sojourn.service.served import VersionStatus
from sojourn.service.statistics import ModelStatistics


def counts_of(statistics: Iterable[ModelStatistics]) -> dict[tuple[str, int], Counts]:
    """The counts by model and version."""
    return {
        (one.name, one.version): Counts(
            one.succeeded + one.failed, one.failed, one.steps, one.rows, tuple(one.histogram)
        )
        for one in statistics
    }


def by_model(counts: Mapping[tuple[str, int], Counts]) -> dict[str, Counts]:
    """The counts by model, with all versions added together."""
    sums: dict[str, Counts] = {}
    for (name, _), done in counts.items():
        sums[name] = added(sums.get(name, Counts()), done)
    return sums


def added(one: Counts, other: Counts) -> Counts:
    """The sum of both."""
    width = max(len(one.histogram), len(other.histogram))
    first, second = ([*c.histogram, *[0] * (width - len(c.histogram))] for c in (one, other))
    return Counts(
        one.requests + other.requests,
        one.failures + other.failures,
        one.batches + other.batches,
        one.rows + other.rows,
        [a + b for a, b in zip(first, second, strict=True)],
    )


def versions_of(statuses: Iterable[VersionStatus]) -> list[Version]:
    """The part of the catalogue's statuses that the page shows."""
    return [
        Version(one.name, one.version, one.state.name, tuple(one.labels), one.error)
        for one in statuses
    ]
