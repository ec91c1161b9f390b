"""The numbers of a server in Prometheus's text format: its requests, then those of its models.

Requests are counted as they are answered. Everything else is asked for when a scrape comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sojourn.probes.status_page import BUCKETS, bucket
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
        if model and not self._is_known(model):
            model = ""
        key = (model, protocol, code)
        self._counts[key] = self._counts.get(key, 0) + 1
        taken = self._seconds.get(key[:2])
        if taken is None:
            taken = self._seconds[key[:2]] = ([0] * BUCKETS, [0.0])
        taken[0][bucket(seconds)] += 1
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
