"""Points: what happened in a period, for one model or for all. Pure functions, without I/O.

Points merge without loss: the percentiles of a merged point are those of all its requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sojourn.probes.status_page import BUCKETS, bucket_seconds, quantile

EVERYTHING = ""  # the `model` of a point about all models


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of a model since the start of its server."""

    requests: int = 0
    failures: int = 0
    batches: int = 0
    rows: int = 0  # in all batches together
    histogram: Sequence[int] = ()  # requests by how long they took, in the buckets of status_page


@dataclass(frozen=True, slots=True)
class Point:
    """The figures of one model, or of all, in the `seconds` before the unix time `at`."""

    at: float
    model: str
    seconds: float
    requests: int = 0
    failures: int = 0
    batches: int = 0
    rows: int = 0
    held_bytes: int = 0
    limit_bytes: int | None = None
    waiting: int = 0
    histogram: Mapping[int, int] = field(default_factory=dict)  # bucket: count


def difference(now: Counts, before: Counts) -> Counts:
    """The difference of two counts; after a restart of the server or model they begin at zero."""
    if now.requests < before.requests:
        return now
    old = [*before.histogram, *[0] * len(now.histogram)]
    return Counts(
        now.requests - before.requests,
        max(0, now.failures - before.failures),
        max(0, now.batches - before.batches),
        max(0, now.rows - before.rows),
        [max(0, a - b) for a, b in zip(now.histogram, old, strict=False)],
    )


def merged(points: Sequence[Point]) -> Point:
    """Merge consecutive points into one. Its held bytes and its waiting are the maximum."""
    last = points[-1]
    histogram: dict[int, int] = {}
    for point in points:
        for bucket, count in point.histogram.items():
            histogram[bucket] = histogram.get(bucket, 0) + count
    return Point(
        last.at,
        last.model,
        sum(point.seconds for point in points),
        sum(point.requests for point in points),
        sum(point.failures for point in points),
        sum(point.batches for point in points),
        sum(point.rows for point in points),
        max(point.held_bytes for point in points),
        last.limit_bytes,
        max(point.waiting for point in points),
        histogram,
    )


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """At most `most` points, each merged from the same number of neighbours."""
    stride = -(-len(points) // most) or 1
    if stride == 1:
        return list(points)
    return [merged(points[at : at + stride]) for at in range(0, len(points), stride)]


def columns(points: Iterable[Point]) -> dict[str, list[Any]]:
    """The data of the plots, a list for each curve. Latency is None where no request was made."""
    table: dict[str, list[Any]] = {
        name: []
        for name in ("at", "requests", "failures", "p50", "p90", "p99", "batch", "held", "limit")
    }
    table["waiting"] = []
    for point in points:
        dense = _dense(point.histogram)
        asked = any(dense)
        table["at"].append(round(point.at, 1))
        table["requests"].append(round(point.requests / point.seconds, 3))
        table["failures"].append(round(point.failures / point.seconds, 3))
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            table[name].append(quantile(dense, share) if asked else None)
        table["batch"].append(round(point.rows / point.batches, 2) if point.batches else None)
        table["held"].append(point.held_bytes)
        table["limit"].append(point.limit_bytes)
        table["waiting"].append(point.waiting)
    return table


def bars(points: Sequence[Point]) -> list[dict[str, float]]:
    """The distribution of latency: a bar for each bucket, and an empty one at either end."""
    if not points:
        return []
    counts = merged(points).histogram
    if not counts:
        return []
    first, last = max(0, min(counts) - 1), min(BUCKETS - 1, max(counts) + 1)
    return [
        {
            "from": bucket_seconds(bucket - 1) if bucket else 0.0,
            "to": bucket_seconds(bucket),
            "count": counts.get(bucket, 0),
        }
        for bucket in range(first, last + 1)
    ]


def sparse(histogram: Sequence[int]) -> dict[int, int]:
    """The non-empty buckets."""
    return {bucket: count for bucket, count in enumerate(histogram) if count}


def _dense(histogram: Mapping[int, int]) -> list[int]:
    return [histogram.get(bucket, 0) for bucket in range(BUCKETS)]
