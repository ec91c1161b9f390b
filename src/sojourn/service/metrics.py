"""The numbers of a server in Prometheus's text format: its requests, then those of its models.

Requests are counted as they are answered. Everything else is asked for when a scrape comes.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator

from sojourn.probes.status_page import BUCKETS, bucket
from sojourn.service.handler import Handler
from sojourn.session.metrics import STEP_SECONDS, Family, Sample, histogram


class RequestCounts:
    """How many requests there were, and how long they took. One writer: the server's loop."""

    def __init__(self, is_known: Callable[[str], bool]) -> None:
        # Names come from requests, and whoever can send one could send millions of names.
        self._is_known = is_known
        self._counts: dict[tuple[str, str, str], int] = {}
        self._seconds: dict[tuple[str, str], tuple[list[int], list[float]]] = {}
        self._bytes: dict[str, list[int]] = {}

    def add(
        self,
        protocol: str,
        model: str,
        code: str,
        seconds: float,
        received_bytes: int = 0,
        sent_bytes: int = 0,
    ) -> None:
        """One request was answered with this code."""
        key = (model, protocol, code)
        count = self._counts.get(key)
        if count is None and model and not self._is_known(model):
            key = ("", protocol, code)
            count = self._counts.get(key)
        self._counts[key] = 1 + (count or 0)
        taken = self._seconds.get(key[:2])
        if taken is None:
            taken = self._seconds[key[:2]] = ([0] * BUCKETS, [0.0])
        taken[0][bucket(round(seconds * 1e9))] += 1
        taken[1][0] += seconds
        moved = self._bytes.setdefault(protocol, [0, 0])
        moved[0] += received_bytes
        moved[1] += sent_bytes

    def families(self) -> Iterator[Family]:
        """What Prometheus reads of it."""
        counts: list[Sample] = [
            ("", {"model": model, "protocol": protocol, "code": code}, count)
            for (model, protocol, code), count in sorted(self._counts.items())
        ]
        yield "sojourn_server_requests_total", "counter", "Requests that were answered.", counts
        seconds: list[Sample] = []
        for (model, protocol), (buckets, [total]) in sorted(self._seconds.items()):
            who = {"model": model, "protocol": protocol}
            seconds += histogram(who, STEP_SECONDS, buckets, total)
        about = "How long requests took, from their last byte to their answer."
        yield "sojourn_server_request_seconds", "histogram", about, seconds
        for at, name, about in (
            (0, "received", "Bytes of the bodies of requests."),
            (1, "sent", "Bytes of the bodies of answers."),
        ):
            moved: list[Sample] = [
                ("", {"protocol": protocol}, both[at])
                for protocol, both in sorted(self._bytes.items())
            ]
            yield f"sojourn_server_{name}_bytes_total", "counter", about, moved


def families_of_models(handler: Handler) -> Iterator[Family]:
    """What Prometheus reads of the models that are served. Ask on the server's loop."""
    outcomes: list[Sample] = []
    batches: list[Sample] = []
    sums: dict[str, list[Sample]] = {name: [] for name in _SUMS}
    for one in handler.statistics():
        who = {"model": one.name, "version": str(one.version)}
        others = one.failed - one.refused - one.late
        for outcome, count in (
            ("succeeded", one.succeeded),
            ("refused", one.refused),
            ("late", one.late),
            ("failed", others),
        ):
            outcomes.append(("", {**who, "outcome": outcome}, count))
        counts = [0] * (len(_ROWS) + 1)
        for rows, batch in one.batches.items():
            counts[bisect.bisect_left(_ROWS, rows)] += batch.count
        batches += histogram(who, _ROWS, counts, one.rows)
        for name in _SUMS:
            sums[name].append(("", who, getattr(one, name)))
    about = "Requests for a model: refused because too many waited, late because time was up."
    yield "sojourn_server_model_requests_total", "counter", about, outcomes
    yield "sojourn_server_batch_rows", "histogram", "Rows that ran together in a step.", batches
    for name, (kind, about) in _SUMS.items():
        suffix = "_total" if kind == "counter" else ""
        yield f"sojourn_server_model_{name}{suffix}", kind, about, sums[name]
    statuses = handler.statuses()
    for name, (attribute, about) in _GAUGES.items():
        samples: list[Sample] = [
            ("", {"model": one.name, "version": str(one.version)}, float(getattr(one, attribute)))
            for one in statuses
        ]
        yield f"sojourn_server_model_{name}", "gauge", about, samples
    states: list[Sample] = [
        ("", {"model": one.name, "version": str(one.version), "state": one.state.name}, 1)
        for one in statuses
    ]
    yield "sojourn_server_model_state", "gauge", "The state that a version is in: 1.", states


_ROWS = [float(2**power) for power in range(11)]
_SUMS = {
    "queue_seconds": ("counter", "Time that requests have waited for their step."),
    "repeated": ("counter", "Requests that were run again because a worker had died."),
    "waiting": ("gauge", "Requests that wait now."),
}
_GAUGES = {
    "loaded": ("is_loaded", "Whether a version has memory now."),
    "memory_bytes": ("memory", "What the copies of a version hold."),
    "copies": ("copies", "Sessions of a version that are open."),
    "generation": ("generation", "How often a version was brought into service."),
    "failures": ("failures", "How often in a row a version has failed to open or lost its worker."),
    "retry_seconds": ("retry_seconds", "How long a version that keeps failing is left alone."),
}
