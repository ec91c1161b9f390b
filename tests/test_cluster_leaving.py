"""Copies that are to leave and cannot: they are leased, or their state cannot be kept."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

import models
import sojourn
from cluster_stand_in import StandIn, copies_of, stand_in
from faults.tools import wait_until
from sojourn.cluster import Cluster
from sojourn.cluster.storage import Storage
from sojourn.errors import CheckpointError

pytestmark = pytest.mark.usefixtures("zygote")
MiB = 2**20


@pytest.fixture
def node() -> Iterator[StandIn]:
    """One node that has room for one copy of a model."""
    with stand_in("a", memory=300 * MiB) as node:
        yield node


@pytest.fixture
def everywhere(node: StandIn) -> Iterator[Cluster]:
    with node.connect() as everywhere:
        yield everywhere


def evicted(node: StandIn, name: str) -> None:
    """Have the planner order the copies of a model to leave, by what it knows just now."""

    async def order() -> None:
        controller = node.controller
        copies = list(controller._planner.books.entries[name].copies.values())
        controller._perform(
            controller._planner._evict([copy.id for copy in copies], time.monotonic())
        )

    node.do(order())


def is_leaving(node: StandIn, name: str) -> bool:
    copies = node.controller._planner.books.entries[name].copies.values()
    return any(copy.is_leaving for copy in copies)


def count_to(everywhere: Cluster, amount: float) -> None:
    with everywhere.lease("counter", timeout=30) as session:
        session.run("total", {"amount": amount})


def full(*given: Any) -> None:
    raise CheckpointError("no space left on device")


def test_a_lease_that_no_report_has_told_of_yet_is_not_ended_by_an_eviction(
    node: StandIn, everywhere: Cluster
) -> None:
    everywhere.register("counter", models.counter)
    with everywhere.lease("counter", timeout=30) as session:
        evicted(node, "counter")  # the planner takes it for idle
        wait_until(lambda: not is_leaving(node, "counter"))
        assert session.run("total", {"amount": 1.0}) == 1.0
        assert copies_of(everywhere, "counter") == ["a"]
    evicted(node, "counter")
    wait_until(lambda: copies_of(everywhere, "counter") == [])


def test_a_leased_copy_that_stays_makes_the_newcomer_wait(
    node: StandIn, everywhere: Cluster
) -> None:
    everywhere.register("counter", models.counter, memory="200MiB")
    everywhere.register("add", models.adder, memory="200MiB")
    with everywhere.lease("counter", timeout=30) as session:
        with pytest.raises(sojourn.PoolTimeout):
            everywhere.lease("add", timeout=3)
        assert session.run("total", {"amount": 1.0}) == 1.0
    with everywhere.lease("add", timeout=30) as session:
        assert session.run("output", {"a": 1, "b": 2}) == 3


def test_a_copy_whose_state_cannot_be_kept_stays_in_use_and_its_node_goes_on(
    node: StandIn, everywhere: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everywhere.register("counter", models.counter)
    everywhere.register("add", models.adder)
    count_to(everywhere, 5.0)

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "put", full)
        evicted(node, "counter")
        wait_until(lambda: "counter" in node.controller._trouble)
        wait_until(lambda: not is_leaving(node, "counter"))
        with everywhere.lease("counter", timeout=5) as session:
            assert session.run("value") == 5.0  # nothing was lost
        with everywhere.lease("add", timeout=30) as session:  # room is there, and opening goes on
            assert session.run("output", {"a": 1, "b": 2}) == 3
        assert "no space left" in str(everywhere.status()["lost"])
    evicted(node, "counter")
    wait_until(lambda: everywhere.status()["lost"] == [])
    with everywhere.lease("counter", timeout=30) as session:
        assert session.run("value") == 5.0


def test_who_waits_for_room_is_told_what_cannot_be_parked(
    node: StandIn, everywhere: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everywhere.register("counter", models.counter, memory="200MiB")
    everywhere.register("add", models.adder, memory="200MiB")
    count_to(everywhere, 5.0)

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "put", full)
        with pytest.raises(sojourn.PoolTimeout, match="counter: it cannot be parked: no space"):
            everywhere.lease("add", timeout=6)
    with everywhere.lease("add", timeout=30) as session:  # there is space again
        assert session.run("output", {"a": 1, "b": 2}) == 3


def test_a_model_whose_state_cannot_be_kept_can_be_unregistered(
    node: StandIn, everywhere: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everywhere.register("counter", models.counter)
    count_to(everywhere, 5.0)

    monkeypatch.setattr(Storage, "put", full)
    evicted(node, "counter")
    everywhere.unregister("counter")
    assert node.controller._planner.books.copies == {}
    assert everywhere.status()["lost"] == []


def test_the_state_of_a_worker_that_died_is_not_kept_as_it_was_at_first(
    node: StandIn, everywhere: Cluster
) -> None:
    everywhere.register("counter", models.counter)
    count_to(everywhere, 5.0)
    evicted(node, "counter")
    wait_until(lambda: copies_of(everywhere, "counter") == [])
    with everywhere.lease("counter", timeout=30) as session:
        session.run("total", {"amount": 1.0})
        pid = session.pid
    agent = node.nodes.actors["a"].agent
    [copy] = agent._open

    async def close() -> bool:
        os.kill(pid, signal.SIGKILL)
        while os.path.exists(f"/proc/{pid}"):
            time.sleep(0.001)  # no report in between
        return await agent.close(node.controller._epoch, copy, True)

    assert not asyncio.run_coroutine_threadsafe(close(), node.loop).result(60)
    with everywhere.lease("counter", timeout=30) as session:
        assert session.run("value") == 5.0  # what was kept before
