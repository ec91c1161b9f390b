"""A name that is registered again is another model: nothing of the first one is met any more."""

from __future__ import annotations

import os
import signal
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import models
import served_models
import sojourn
from cluster_stand_in import StandIn, copies_of
from faults.tools import Background, wait_until
from sojourn.cluster import Cluster
from sojourn.cluster.agent import Agent
from sojourn.cluster.links import Link
from test_cluster_fronts import fronts

pytestmark = pytest.mark.usefixtures("zygote")


def pure() -> Any:
    """The names of a counter, and nothing that is changed."""
    import tensorflow as tf

    amount = tf.compat.v1.placeholder(tf.float32, [], name="amount")
    return {"amount": amount}, {"total": amount + 100.0}


def ends_with(session: Any) -> None:
    """The worker of a lease is killed."""
    os.kill(session.pid, signal.SIGKILL)


def test_what_is_parked_late_is_no_state_of_the_next_model_of_that_name(
    nodes: StandIn, everywhere: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everywhere.register("counter", models.counter)
    with everywhere.lease("counter", timeout=30) as session:
        session.run("total", {"amount": 5.0})
    begun, go = threading.Event(), threading.Event()
    park_now = Agent._park_now

    def slowly(*given: Any) -> bool:
        begun.set()
        assert go.wait(30)
        return park_now(*given)

    monkeypatch.setattr(Agent, "_park_now", slowly)
    nodes.evict("counter")
    assert begun.wait(30)
    leaving = Background(everywhere.unregister, "counter")
    wait_until(lambda: everywhere.status()["models"] == [])
    coming = Background(everywhere.register, "counter", models.counter)
    go.set()
    leaving.result()
    coming.result()
    with everywhere.lease("counter", timeout=30) as session:
        assert session.run("value") == 0.0
        session.run("total", {"amount": 1.0})
    nodes.evict("counter")
    wait_until(lambda: copies_of(everywhere, "counter") == [])
    with everywhere.lease("counter", timeout=30) as session:
        assert session.run("value") == 1.0


def test_whether_a_step_may_be_repeated_is_asked_of_each_model_of_a_name(
    everywhere: Cluster,
) -> None:
    everywhere.register("counter", pure)
    with everywhere.lease("counter", timeout=30) as session:
        assert session.run("total", {"amount": 1.0}) == 101.0
        ends_with(session)
        assert session.run("total", {"amount": 1.0}, timeout=30) == 101.0  # repeated
    everywhere.unregister("counter")
    everywhere.register("counter", models.counter)
    with everywhere.lease("counter", timeout=30) as session:
        assert session.run("total", {"amount": 1.0}) == 1.0
        ends_with(session)
        with pytest.raises((sojourn.SessionBroken, sojourn.LeaseExpired)):
            session.run("total", {"amount": 1.0}, timeout=30)


def test_a_lost_step_is_not_repeated_on_another_model_of_its_name(
    nodes: StandIn, everywhere: Cluster
) -> None:
    everywhere.register("counter", pure)
    with everywhere.lease("counter", timeout=30) as session:
        assert session.run("total", {"amount": 1.0}) == 101.0
        with nodes.connect() as other:
            session.link.cut()  # its node did not answer for a while
            everywhere._links[session.link.facts.node_id] = Link(session.link.facts)
            other.unregister("counter")
            other.register("counter", models.counter)
            with pytest.raises(sojourn.SessionBroken, match="registered again"):
                session.run("total", {"amount": 1.0}, timeout=30)
            with other.lease("counter", timeout=30) as new:
                assert new.run("value") == 0.0


def test_a_copy_that_is_closed_while_it_is_opened_is_not_met_by_the_next(
    nodes: StandIn, everywhere: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = threading.Event(), threading.Event()
    open_now = Agent._open_now

    def slowly(*given: Any) -> Any:
        begun.set()
        assert go.wait(30)
        return open_now(*given)

    with monkeypatch.context() as patched:
        patched.setattr(Agent, "_open_now", slowly)
        everywhere.register("add", models.counter, pinned=True)
        assert begun.wait(30)
        leaving = Background(everywhere.unregister, "add")
        wait_until(lambda: everywhere.status()["models"] == [])
        coming = Background(partial(everywhere.register, "add", models.adder, pinned=True))
        go.set()
        leaving.result()
        coming.result()
    wait_until(lambda: len(copies_of(everywhere, "add")) == 1)
    with everywhere.lease("add", timeout=30) as session:
        assert session.run("output", {"a": 1, "b": 2}) == 3
        members = nodes.controller._members.values()
        first = {id(member): member.report for member in members}
        wait_until(lambda: all(member.report is not first[id(member)] for member in members))
        assert session.run("output", {"a": 1, "b": 2}) == 3  # nobody has ended it


def test_models_that_a_caller_holds_come_back_when_it_is_heard_of_again(
    nodes: StandIn, everywhere: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nodes.connect() as holder:
        holder.hold("add", "/models/add")
        with monkeypatch.context() as patched:
            patched.setattr(holder._control, "beat", lambda holds: None)
            wait_until(lambda: everywhere.status()["models"] == [])
        wait_until(lambda: everywhere.status()["models"] == ["add"])
        holder.unregister("add")
        assert everywhere.status()["models"] == []


def test_a_front_serves_what_its_name_is_registered_as_now(nodes: StandIn, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    with nodes.connect() as program, fronts(nodes, tmp_path / "models", count=1) as (front,):

        def answer(**feeds: int) -> Any:
            inputs = [
                {"name": name, "shape": [], "datatype": "INT64", "data": [value]}
                for name, value in feeds.items()
            ]
            return front.client.ask("POST", "/v2/models/m/infer", {"inputs": inputs})["outputs"]

        program.register("m", models.adder)
        wait_until(lambda: "m" in front.front._pool.names())
        assert answer(a=2, b=2)[0]["data"] == [4]
        before = front.front._pool._status["marks"]["m"]
        program.unregister("m")
        program.register("m", lambda: lambda other: other * 3)
        wait_until(lambda: front.front._pool._status["marks"].get("m", before) != before)
        assert answer(other=2)[0]["data"] == [6]


def test_a_front_goes_on_when_the_worker_behind_its_kept_lease_has_died(
    nodes: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sojourn.cluster.serving.pool.IDLE_SECONDS", 60.0)
    served_models.write_version(tmp_path / "models" / "times", 2)
    with fronts(nodes, tmp_path / "models", count=1) as (front,):
        assert front.infer() == [8]
        [lease] = [lease for lease in front.everywhere._leases if lease.is_active]
        agent = nodes.nodes.actors[lease.node].agent
        ends_with(lease)
        wait_until(lambda: agent._leases.count("times:2") == 0)  # its node has noticed
        assert front.infer() == [8]
