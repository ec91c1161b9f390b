"""Steps that are lost, nodes that do not start, and controllers that were replaced."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import models
import sojourn
from cluster_stand_in import StandIn, copies_of, stand_in
from faults.tools import Background, wait_until
from sojourn.cluster import Cluster
from sojourn.cluster.terms import StaleEpoch

ONES = np.ones((2, 784), np.float32)
pytestmark = pytest.mark.usefixtures("zygote")


def test_many_steps_of_one_lease_move_together_and_are_counted_exactly(
    nodes: StandIn, everywhere: Cluster
) -> None:
    everywhere.register("soft", models.softmax_regression, copies=2, pinned=True)
    wait_until(lambda: len(copies_of(everywhere, "soft")) == 2)
    steps = 30

    async def many(session: Any) -> list[Any]:
        async def step(i: int) -> Any:
            if i == 5:
                await asyncio.get_running_loop().run_in_executor(None, nodes.kill, session.node)
            return await session.arun("y", {"x": ONES}, timeout=30)

        return await asyncio.gather(*map(step, range(steps)))

    with everywhere.lease("soft", timeout=30) as session:
        session.run("y", {"x": ONES})
        lost = session.node
        assert len(asyncio.run(many(session))) == steps
        assert session.node != lost
        other = nodes.nodes.actors[session.node].agent
        assert other._leases.count("soft") == 1
    counts = everywhere.counts
    assert counts["answered"] == steps + 1
    assert 1 <= counts["repeated"] <= steps
    assert (counts["failed"], counts["lost"], counts["late"]) == (0, 0, 0)


def test_lost_steps_are_counted_exactly(nodes: StandIn, everywhere: Cluster) -> None:
    everywhere.register("counter", models.counter)
    with everywhere.lease("counter", timeout=30) as session:
        assert session.run("total", {"amount": 1.0}) == 1.0
        with pytest.raises(sojourn.InputError):
            session.run("nothing like it")
        nodes.kill(session.node)
        with pytest.raises(sojourn.SessionBroken, match="unknown"):
            session.run("total", {"amount": 1.0})
    assert everywhere.counts == {"answered": 1, "failed": 1, "repeated": 0, "lost": 1, "late": 0}


def test_a_step_whose_worker_died_is_repeated_where_its_only_copy_comes_back() -> None:
    with stand_in("a") as nodes, nodes.connect() as everywhere:
        everywhere.register("soft", models.softmax_regression)
        with everywhere.lease("soft", timeout=30) as session:
            session.run("y", {"x": ONES})
            before = session.pid
            os.kill(before, signal.SIGKILL)
            assert session.run("y", {"x": ONES}, timeout=30).shape == (2, 10)
            assert session.pid != before


def test_who_connects_while_an_agent_ends_is_hung_up_on(nodes: StandIn) -> None:
    made: list[socket.socket] = []

    def connect(address: tuple[str, int]) -> None:
        with contextlib.suppress(OSError):  # until it is refused
            while len(made) < 100:
                made.append(socket.create_connection(address, 10))

    with nodes.connect() as everywhere, contextlib.ExitStack() as stack:
        connecting = Background(connect, everywhere._links["a"].facts.address)
        wait_until(lambda: len(made) > 2)
        nodes.kill("a")
        connecting.result()
        for each in map(stack.enter_context, made):
            with contextlib.suppress(ConnectionResetError):
                assert each.recv(1) == b""


def test_a_controller_that_was_replaced_ends_nothing(nodes: StandIn, everywhere: Cluster) -> None:
    everywhere.register("add", models.adder, pinned=True)
    wait_until(lambda: copies_of(everywhere, "add"))
    replaced = nodes.controller
    nodes.new_controller()
    everywhere._take(everywhere._control.attach())  # its callers are with the other one
    replaced._callers.expire(math.inf)
    nodes.do(replaced._end_all())  # nobody is left, as far as it knows
    assert nodes.nodes.has_stepped_down.is_set()
    assert not nodes.nodes.has_ended.is_set()
    with everywhere.lease("add", timeout=30) as session:
        assert session.run("output", {"a": 1, "b": 2}) == 3


def test_a_controller_that_was_replaced_does_not_take_a_node_back(nodes: StandIn) -> None:
    with nodes.connect():
        replaced = nodes.controller
        controller = nodes.new_controller()
        nodes.do(controller.attach("somebody"))
        with pytest.raises(StaleEpoch):
            nodes.do(replaced._join({"NodeID": "a"}))
        assert nodes.nodes.has_stepped_down.is_set()
        assert nodes.do(controller.status())["epoch"] == 2


def evict(nodes: StandIn, name: str) -> None:
    nodes.evict(name)
    wait_until(lambda: not nodes.controller._planner.books.entries[name].copies)


def replace_controller(nodes: StandIn, everywhere: Cluster) -> None:
    nodes.stop_controller()
    nodes.new_controller()
    everywhere._take(everywhere._control.attach())


@pytest.mark.parametrize("is_shared", [True, False])
def test_what_was_parked_outlives_the_controller(is_shared: bool, tmp_path: Path) -> None:
    storage = f"file://{tmp_path}/states" if is_shared else None
    with stand_in("a", "b", storage=storage) as nodes, nodes.connect() as everywhere:
        everywhere.register("counter", models.counter)
        with everywhere.lease("counter", timeout=30) as session:
            session.run("total", {"amount": 5.0})
        evict(nodes, "counter")
        replace_controller(nodes, everywhere)
        with everywhere.lease("counter", timeout=30) as session:
            assert session.run("value") == 5.0
        replace_controller(nodes, everywhere)
        evict(nodes, "counter")  # not parked: it is as it was restored
        with everywhere.lease("counter", timeout=30) as session:
            assert session.run("value") == 5.0
        everywhere.unregister("counter")
        replace_controller(nodes, everywhere)
        everywhere.register("counter", models.counter)
        assert not nodes.controller._planner.books.entries["counter"].parked


def test_what_was_parked_outlives_the_controller_and_the_node_that_parked_it(
    tmp_path: Path,
) -> None:
    with (
        stand_in("a", storage=f"file://{tmp_path}/states") as nodes,
        nodes.connect() as everywhere,
    ):
        everywhere.register("counter", models.counter)
        with everywhere.lease("counter", timeout=30) as session:
            session.run("total", {"amount": 5.0})
        evict(nodes, "counter")
        nodes.nodes.names.append("b")  # it is told of what was before it
        wait_until(lambda: len(everywhere.status()["nodes"]) == 2)
        nodes.stop_controller()
        nodes.kill("a")
        nodes.new_controller()
        everywhere._take(everywhere._control.attach())
        with everywhere.lease("counter", timeout=30) as session:
            assert session.node == "b"
            assert session.run("value") == 5.0


def test_what_is_parked_while_the_controller_is_replaced_is_known_to_the_next(
    nodes: StandIn, everywhere: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everywhere.register("counter", models.counter)
    with everywhere.lease("counter", timeout=30) as session:
        session.run("total", {"amount": 5.0})
        agent = nodes.nodes.actors[session.link.facts.node_id].agent
    begun, go = threading.Event(), threading.Event()
    park_now = agent._park_now

    def slowly(*given: Any) -> bool:
        begun.set()
        assert go.wait(30)
        return park_now(*given)

    monkeypatch.setattr(agent, "_park_now", slowly)
    [copy] = agent._open
    parking = asyncio.run_coroutine_threadsafe(
        agent.close(nodes.controller._epoch, copy, True), nodes.loop
    )
    assert begun.wait(30)
    replace_controller(nodes, everywhere)
    go.set()
    assert parking.result(30)
    entry = nodes.controller._planner.books.entries["counter"]
    wait_until(lambda: entry.parked)
    with everywhere.lease("counter", timeout=30) as session:
        assert session.run("value") == 5.0


def test_a_node_that_does_not_start_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sojourn.cluster.controller.MEET_SECONDS", 0.2)
    with stand_in("a", "b") as nodes:
        slow = nodes.nodes.agent({"NodeID": "b"})
        go = threading.Event()
        started = slow.agent.started

        async def start_late() -> Any:
            while not go.is_set():
                await asyncio.sleep(0.02)
            return await started()

        slow.agent.started = start_late
        with nodes.connect() as everywhere:
            assert [node["node"] for node in everywhere.status()["nodes"]] == ["a"]
            go.set()
            wait_until(lambda: len(everywhere.status()["nodes"]) == 2)


def test_what_a_caller_holds_goes_with_the_last_that_holds_it(nodes: StandIn) -> None:
    with nodes.connect() as one:
        with nodes.connect() as two:
            for caller in (one, two):
                caller.hold("add", "/models/add")
            two.unregister("add")
            assert one.status()["models"] == ["add"]
            two.hold("add", "/models/add")
            one.unregister("add")
            assert two.status()["models"] == ["add"]
        wait_until(lambda: one.status()["models"] == [])


def test_a_step_that_was_only_asked_about_when_its_worker_died_is_run_elsewhere() -> None:
    with stand_in("a") as nodes, nodes.connect() as everywhere:
        everywhere.register("counter", models.counter)
        with everywhere.lease("counter", timeout=30) as session:
            os.kill(session.pid, signal.SIGKILL)
            assert session.run("total", {"amount": 1.0}, timeout=30) == 1.0
        assert everywhere.counts["repeated"] == everywhere.counts["lost"] == 0
