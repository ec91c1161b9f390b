"""The numbers of a server in Prometheus's text format: its requests, then those of its models.

Requests are counted as they are answered. Everything else is read when a scrape arrives.
"""

from __future__ import annotations

import bisect
import operator
from collections.abc import Callable, Iterator

from sojourn.probes.status_page import BUCKETS, bucket
from sojourn.service.handler import Handler
from sojourn.session.metrics import STEP_SECONDS, Family, Sample, histogram


class RequestCounts:
    """Counts and durations of requests. One writer: the server's loop."""

    def __init__(self, is_known: Callable[[str], bool]) -> None:
        # Names come from requests, and a client could send millions of different names.
        self._is_known = is_known
        self._answers: dict[tuple[str, str, int], _Answers] = {}  # by model, protocol and code

    def add(
        self,
        protocol: str,
        model: str,
        code: int,
        seconds: float,
        received_bytes: int = 0,
        sent_bytes: int = 0,
    ) -> None:
        """Count one request that was answered with this code."""
        answers = self._answers.get((model, protocol, code))
        if answers is None:
            if model and not self._is_known(model):
                model = ""
            answers = self._answers.setdefault((model, protocol, code), _Answers())
        answers.count += 1
        answers.buckets[bucket(int(seconds * 1e9))] += 1
        answers.seconds += seconds
        answers.received += received_bytes
        answers.sent += sent_bytes

    def families(self) -> Iterator[Family]:
        """Yield the metric families of the requests."""
        by_code = sorted(self._answers.items())
        counts: list[Sample] = [
            ("", {"model": model, "protocol": protocol, "code": str(code)}, answers.count)
            for (model, protocol, code), answers in by_code
        ]
        yield "sojourn_server_requests_total", "counter", "Requests that were answered.", counts
        sums: dict[tuple[str, str], _Answers] = {}
        by_protocol: dict[str, _Answers] = {}
        for (model, protocol, _), answers in by_code:
            sums.setdefault((model, protocol), _Answers()).include(answers)
            by_protocol.setdefault(protocol, _Answers()).include(answers)
        seconds: list[Sample] = []
        for (model, protocol), answers in sums.items():
            who = {"model": model, "protocol": protocol}
            seconds += histogram(who, STEP_SECONDS, answers.buckets, answers.seconds)
        about = "How long requests took, from their last byte to their answer."
        yield "sojourn_server_request_seconds", "histogram", about, seconds
        for name, about in (
            ("received", "Bytes of the bodies of requests."),
            ("sent", "Bytes of the bodies of answers."),
        ):
            moved: list[Sample] = [
                ("", {"protocol": protocol}, getattr(answers, name))
                for protocol, answers in sorted(by_protocol.items())
            ]
            yield f"sojourn_server_{name}_bytes_total", "counter", about, moved


class _Answers:
    """Counts, durations and body sizes of answered requests of one kind."""

    __slots__ = ("buckets", "count", "received", "seconds", "sent")

    def __init__(self) -> None:
        self.count = self.received = self.sent = 0
        self.seconds = 0.0
        self.buckets = [0] * BUCKETS

    def include(self, others: _Answers) -> None:
        """Add another's counts."""
        self.seconds += others.seconds
        self.received += others.received
        self.sent += others.sent
        self.buckets = list(map(operator.add, self.buckets, others.buckets))


def families_of_models(handler: Handler) -> Iterator[Family]:
    """Yield the metric families of the served models. Call it on the server's loop."""
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
