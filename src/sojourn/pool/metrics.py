"""The numbers of this process's pools, among those that `sojourn.metrics()` tells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sojourn.pool.decisions.status import PoolStatus
from sojourn.pool.driver import Driver
from sojourn.session.metrics import Family, Labels, Sample

_COUNTED = {
    "grants": "Leases that were granted.",
    "hits": "Leases that were granted at once.",
    "opens": "Sessions that were opened.",
    "evictions": "Sessions that left for others.",
    "parks": "Sessions whose changed variables were saved.",
    "recycled": "Sessions that were replaced by fresh ones.",
    "deaths": "Workers that died by themselves.",
    "refusals": "Leases that were refused, for want of time or room.",
    "deadlocks": "Leases that were refused because holders waited for each other.",
}


def families(drivers: Iterable[Driver]) -> Iterator[Family]:
    """What Prometheus reads of these pools; nothing where there are none."""
    told: list[tuple[Labels, PoolStatus]] = [
        ({"pool": str(driver.made_at), "serial": str(driver.serial)}, driver.status())
        for driver in drivers
    ]
    if not told:
        return
    states: list[Sample] = [
        ("", {**who, "state": state}, getattr(status, state))
        for who, status in told
        for state in ("leased", "idle", "opening", "leaving")
    ]
    yield "sojourn_pool_sessions", "gauge", "Sessions of a pool, by what they do.", states
    yield _gauge("charged_bytes", "What a pool's sessions are charged with.", told)
    limited = [(who, status) for who, status in told if status.limit_bytes is not None]
    yield _gauge("limit_bytes", "What a pool's sessions may hold together.", limited)
    yield _gauge("waiting", "Those who wait for a lease.", told)
    for name, about in _COUNTED.items():
        samples: list[Sample] = [("", who, status.counters[name]) for who, status in told]
        yield f"sojourn_pool_{name}_total", "counter", about, samples


def _gauge(name: str, about: str, told: list[tuple[Labels, PoolStatus]]) -> Family:
    samples: list[Sample] = [("", who, getattr(status, name)) for who, status in told]
    return f"sojourn_pool_{name}", "gauge", about, samples
