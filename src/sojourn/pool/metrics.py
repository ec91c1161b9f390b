"""The metrics of this process's pools, which `sojourn.metrics()` includes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sojourn.pool.decisions.catalogue import WAIT_SECONDS
from sojourn.pool.decisions.status import PoolStatus
from sojourn.pool.driver import Driver
from sojourn.session.metrics import Family, Labels, Sample, histogram, step_histogram

_COUNTED = {
    "grants": "Leases that were granted.",
    "hits": "Leases that were granted at once.",
    "opens": "Sessions that were opened.",
    "spares_taken": "Sessions that were opened in a spare worker.",
    "spares_lost": "Spare workers that died or could not be made.",
    "evictions": "Sessions that left for others.",
    "parks": "Sessions whose changed variables were saved.",
    "recycled": "Sessions that were replaced by fresh ones.",
    "overruns": "Sessions that grew until the pool was over its limit.",
    "updates": "Models that were replaced by a new version.",
    "deaths": "Workers that died by themselves.",
    "refusals": "Leases that were refused, for want of time or room.",
    "deadlocks": "Leases that were refused because holders waited for each other.",
}


def families(drivers: Iterable[Driver]) -> Iterator[Family]:
    """Yield the Prometheus families of these pools; none if there are no pools."""
    pools: list[tuple[Labels, PoolStatus, Driver]] = [
        ({"pool": str(driver.made_at), "serial": str(driver.serial)}, driver.status(), driver)
        for driver in drivers
    ]
    if not pools:
        return
    states: list[Sample] = [
        ("", {**who, "state": state}, getattr(status, state))
        for who, status, _ in pools
        for state in ("leased", "idle", "opening", "leaving")
    ]
    standing: list[Sample] = [("", who, len(status.spares)) for who, status, _ in pools]
    yield "sojourn_pool_sessions", "gauge", "Sessions of a pool, by what they do.", states
    yield "sojourn_pool_spares", "gauge", "Workers that a pool keeps ready.", standing
    known = [(who, status) for who, status, _ in pools]
    yield _gauge("charged_bytes", "What a pool's sessions are charged with.", known)
    limited = [(who, status) for who, status in known if status.limit_bytes is not None]
    yield _gauge("limit_bytes", "What a pool's sessions may hold together.", limited)
    yield _gauge("waiting", "Those who wait for a lease.", known)
    for name, about in _COUNTED.items():
        samples: list[Sample] = [("", who, status.counters[name]) for who, status in known]
        yield f"sojourn_pool_{name}_total", "counter", about, samples
    yield from _of_models(pools)


def _of_models(pools: list[tuple[Labels, PoolStatus, Driver]]) -> Iterator[Family]:
    sessions: list[Sample] = []
    held: list[Sample] = []
    waits: list[Sample] = []
    steps: list[Sample] = []
    for pool, status, driver in pools:
        done = driver.steps_by_model()
        for model in status.models:
            version = str(model.version)
            who = {**pool, "model": model.name, "version": version}
            mine = [c for c in status.copies if (c.model, c.version) == (model.name, model.version)]
            sessions.append(("", who, model.copies))
            held.append(("", who, sum(copy.bytes for copy in mine)))
            waits += histogram(who, WAIT_SECONDS, model.wait_counts, model.wait_seconds)
            if (model.name, model.version) in done:
                steps += step_histogram(who, done[model.name, model.version])
    yield "sojourn_pool_model_sessions", "gauge", "Sessions of a model that are there.", sessions
    about = "What the sessions of a model are charged with."
    yield "sojourn_pool_model_charged_bytes", "gauge", about, held
    about = "How long granted leases had to be waited for."
    yield "sojourn_pool_lease_wait_seconds", "histogram", about, waits
    about = "How long steps took, for their caller, by model."
    yield "sojourn_pool_step_seconds", "histogram", about, steps


def _gauge(name: str, about: str, pools: list[tuple[Labels, PoolStatus]]) -> Family:
    samples: list[Sample] = [("", who, getattr(status, name)) for who, status in pools]
    return f"sojourn_pool_{name}", "gauge", about, samples
