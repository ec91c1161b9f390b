"""Metrics of this process's sessions in Prometheus's text format, for programs that serve them.

Serve the result of `metrics()` at `/metrics`, as `text/plain; version=0.0.4`. Nothing is collected
in the background: open sessions are measured when `metrics()` is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from sojourn.probes.status_page import BUCKETS, bucket_seconds
from sojourn.session import totals
from sojourn.session.states import State

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STEP_SECONDS = [bucket_seconds(index) for index in range(BUCKETS - 1)]

Labels = Mapping[str, str]
Sample = tuple[str, Labels, float]  # suffix of the name, labels, value
Family = tuple[str, str, str, Iterable[Sample]]  # name, kind, description, samples

# Further sources of metrics of this process: its pools.
others: list[Callable[[], Iterable[Family]]] = []


def metrics() -> str:
    """Return sessions, steps, latencies and bytes of this process in Prometheus's text format."""
    sums, live = totals.now()
    counts = sums.counts
    states = {state: 0 for state in State if state is not State.CLOSED}
    for session in live:
        if session.state in states:
            states[session.state] += 1
    held: list[Sample] = []
    for session in live:
        footprint = session.footprint()
        who = {"session": str(session.identity["name"]), "serial": str(session.serial)}
        held.append(("", {**who, "where": "host"}, footprint.host_bytes))
        held += [("", {**who, "where": d}, n) for d, n in footprint.device_bytes.items()]
    plain: Labels = {}
    models = sorted(sums.steps.items())
    families: tuple[Family, ...] = (
        ("sojourn_sessions", "gauge", "Sessions that are open now, by state.",
         [("", {"state": str(state)}, n) for state, n in states.items()]),
        ("sojourn_sessions_opened_total", "counter", "Sessions that were begun.",
         [("", plain, counts["opened"])]),
        ("sojourn_sessions_closed_total", "counter", "Sessions that have ended.",
         [("", plain, counts["closed"])]),
        ("sojourn_sessions_broken_total", "counter", "Times that a worker died by itself.",
         [("", plain, counts["broken"])]),
        ("sojourn_sessions_forgotten_total", "counter", "Sessions that were never closed.",
         [("", plain, counts["forgotten"])]),
        ("sojourn_sessions_with_residue_total", "counter", "Closed sessions that left something.",
         [("", plain, counts["with_residue"])]),
        ("sojourn_steps_under_way", "gauge", "Steps that run now.",
         [("", plain, sum(session.under_way for session in live))]),
        ("sojourn_steps_total", "counter", "Steps that were run, by model.",
         [("", {"model": model}, steps.count) for model, steps in models]),
        ("sojourn_step_seconds", "histogram", "How long steps took, for their caller, by model.",
         [s for model, steps in models for s in step_histogram({"model": model}, steps)]),
        ("sojourn_session_held_bytes", "gauge", "What an open session holds, as measured.", held),
        ("sojourn_closed_held_bytes_total", "counter", "What closed sessions had held.",
         [("", plain, sums.held_bytes)]),
        ("sojourn_returned_bytes_total", "counter", "What closed sessions have given back.",
         [("", plain, sums.returned_bytes)]),
        ("sojourn_closing_seconds_total", "counter", "Time spent on closing sessions.",
         [("", plain, sums.closing_seconds)]),
    )  # fmt: skip
    more = [family for tell in others for family in tell()]
    return text((*families, *more))


def step_histogram(who: Labels, steps: totals.Steps) -> Iterator[Sample]:
    """The samples of the histogram of step durations."""
    return histogram(who, STEP_SECONDS, steps.histogram, steps.seconds)


def histogram(
    who: Labels, bounds: Sequence[float], counts: Sequence[int], total: float
) -> Iterator[Sample]:
    """The samples of one histogram, whose last count has no upper bound."""
    seen = 0
    for bound, count in zip(bounds, counts, strict=False):
        seen += count
        yield "_bucket", {**who, "le": repr(bound)}, seen
    yield "_bucket", {**who, "le": "+Inf"}, sum(counts)
    yield "_sum", who, total
    yield "_count", who, sum(counts)


def text(families: Iterable[Family]) -> str:
    """Format the families in Prometheus's text format."""
    return "".join(_family(*family) for family in families)


def _family(name: str, kind: str, about: str, samples: Iterable[Sample]) -> str:
    lines = [f"# HELP {name} {about}\n", f"# TYPE {name} {kind}\n"]
    for suffix, labels, value in samples:
        shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        lines.append(f"{name}{suffix}{f'{{{shown}}}' if shown else ''} {value}\n")
    return "".join(lines)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
