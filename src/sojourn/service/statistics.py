"""Counters of what a model has done since it is served."""

from __future__ import annotations

from dataclasses import dataclass, field

from sojourn.probes.status_page import BUCKETS, bucket

_ROWS_COUNTED = 1024  # above, rounded up to a power of two: clients choose the number of rows


@dataclass(slots=True)
class BatchStatistics:
    """The steps with one number of rows."""

    count: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class ModelStatistics:
    """The counters of one model version. Seconds are sums over requests, `step_seconds` over
    steps."""

    name: str
    version: int
    succeeded: int = 0
    failed: int = 0
    refused: int = 0  # of the failed: because too many waited
    late: int = 0  # of the failed: because their deadline passed
    queue_seconds: float = 0.0
    request_seconds: float = 0.0  # from arrival to the answer
    histogram: list[int] = field(default_factory=lambda: [0] * BUCKETS)  # of request seconds
    rows: int = 0
    steps: int = 0
    step_seconds: float = 0.0
    repeated: int = 0  # requests that were run again because a worker had died
    waiting: int = 0  # now
    last_request: float = 0.0  # seconds since the epoch
    batches: dict[int, BatchStatistics] = field(default_factory=dict)  # by rows

    def note_answer(self, seconds: float) -> None:
        """Count an answered request."""
        self.succeeded += 1
        self.request_seconds += seconds
        self.histogram[bucket(int(seconds * 1e9))] += 1

    def note_step(self, rows: int, seconds: float) -> None:
        """Count a finished step."""
        self.rows += rows
        self.steps += 1
        self.step_seconds += seconds
        if rows > _ROWS_COUNTED:
            rows = 1 << (rows - 1).bit_length()
        batch = self.batches.get(rows)
        if batch is None:
            batch = self.batches[rows] = BatchStatistics()
        batch.count += 1
        batch.seconds += seconds
