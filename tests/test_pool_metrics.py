"""`sojourn.metrics()` tells of the pools of this process, as long as they are open."""

from __future__ import annotations

import json
import re

import pytest

import sojourn


def values(name: str) -> list[float]:
    return [float(n) for n in re.findall(rf"^{name}{{.*}} (\S+)$", sojourn.metrics(), re.MULTILINE)]


@pytest.mark.usefixtures("zygote")
def test_a_pool_is_in_the_metrics_until_it_is_closed() -> None:
    assert "sojourn_pool" not in sojourn.metrics()
    with sojourn.Pool(memory="1GiB") as pool, sojourn.Pool():
        pool.register("adder", lambda: lambda a, b: a + b)
        with pool.lease("adder") as session:
            session.run(None, {"a": 1, "b": 2})
            text = sojourn.metrics()
            assert re.search(r'sojourn_pool_sessions{pool="\S+",.*state="leased"} 1', text)
            told = pool.stats().to_dict()
            [copy] = json.loads(json.dumps(told))["copies"]
            assert copy["holders"][0].startswith(__file__)
        assert values("sojourn_pool_grants_total") == [1, 0]
        assert values("sojourn_pool_limit_bytes") == [2**30]
        assert values("sojourn_pool_charged_bytes")[0] > 0
        series = [line for line in text.splitlines() if not line.startswith("#")]
        assert len(series) == len({line.rpartition(" ")[0] for line in series})
    assert "sojourn_pool" not in sojourn.metrics()


@pytest.mark.usefixtures("zygote")
def test_waits_and_steps_are_counted_by_model_and_version() -> None:
    with sojourn.Pool() as pool:
        pool.register("adder", lambda: lambda a, b: a + b)
        pool.register("other", lambda: lambda a, b: a + b)
        for _ in range(3):
            with pool.lease("adder") as session:
                session.run(None, {"a": 1, "b": 2})
        pool.evict("adder")
        with pool.lease("adder") as session:
            session.run(None, {"a": 1, "b": 2})

        def count(family: str, model: str) -> list[str]:
            pattern = rf'{family}_count{{.*model="{model}",version="1"}} (\d+)'
            return re.findall(pattern, sojourn.metrics())

        assert count("sojourn_pool_lease_wait_seconds", "adder") == ["4"]
        assert count("sojourn_pool_lease_wait_seconds", "other") == ["0"]
        assert count("sojourn_pool_step_seconds", "adder") == ["4"]  # those of closed copies too
        text = sojourn.metrics()
        # Two of them had to be opened first, and the others were there at once.
        assert re.search(r'lease_wait_seconds_bucket{.*"adder".*le="0.001"} 2', text)
        assert re.search(r'sojourn_pool_model_charged_bytes{.*"adder".*} [1-9]', text)
