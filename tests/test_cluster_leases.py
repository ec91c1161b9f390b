"""Leases over the network, with agents and a controller in this process instead of on Ray."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import threading
import time
import weakref
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import models
import pool_models
import sojourn
from cluster_stand_in import StandIn, copies_of, stand_in
from faults.tools import wait_until
from sojourn.cluster import Cluster, controller, handle, links
from sojourn.cluster.links import NodeLost
from sojourn.cluster.terms import AgentFacts, Epoch, StaleEpoch
from sojourn.cluster.wire import frames, words
from sojourn.cluster.wire.awaited import AgentEnd
from sojourn.cluster.wire.blocking import Line

pytestmark = pytest.mark.usefixtures("zygote")
ONES = np.ones((2, 784), np.float32)


def test_a_lease_is_used_as_one_of_a_pool(everywhere: Cluster) -> None:
    everywhere.register("soft", models.softmax_regression)
    with everywhere.lease("soft", timeout=30) as session:
        assert session.node in ("a", "b")
        assert list(session.signature.inputs) == ["x"]
        assert session.run("y", {"x": ONES}).shape == (2, 10)
        assert list(session.run(None, {"x": ONES})) == ["y"]
        assert [value.shape for value in session.run(["y"], {"x": ONES})] == [(2, 10)]
        assert session(x=ONES.tolist()).shape == (2, 10)
        assert session.footprint().held_bytes > 0
        assert session.runs == 4
    with pytest.raises(sojourn.LeaseExpired, match="returned"):
        session.run("y", {"x": ONES})


def test_steps_can_be_awaited_many_at_a_time(everywhere: Cluster) -> None:
    everywhere.register("add", models.adder)

    async def many() -> list[Any]:
        async with everywhere.alease("add", timeout=30) as session:
            steps = (session.arun("output", {"a": i, "b": 1}) for i in range(50))
            return await asyncio.gather(*steps)

    assert asyncio.run(many()) == list(range(1, 51))


def test_an_event_loop_that_has_ended_is_not_kept(everywhere: Cluster) -> None:
    everywhere.register("add", models.adder)
    loops = []

    async def one(session: Any) -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        assert await session.arun("output", {"a": 1, "b": 2}) == 3

    with everywhere.lease("add", timeout=30) as session:
        for _ in range(3):
            asyncio.run(one(session))
        gc.collect()
        assert [loop() for loop in loops] == [None, None, None]


def test_large_arrays_and_text_arrive_as_they_were(everywhere: Cluster) -> None:
    everywhere.register("echo", lambda: lambda a: a)
    big = np.random.default_rng(1).normal(size=(512, 1024))
    with everywhere.lease("echo", timeout=30) as session:
        assert np.array_equal(session.run("output", {"a": big}), big)
        assert session.run("output", {"a": ["é", b"\0"]}).tolist() == ["é".encode(), b"\0"]
        assert session.run("output", {"a": np.zeros((0, 3))}).shape == (0, 3)


def test_errors_of_the_model_and_of_names_arrive_as_they_are(everywhere: Cluster) -> None:
    def build() -> Any:
        def divide(a: Any) -> Any:
            raise ZeroDivisionError("by nothing")

        return divide

    everywhere.register("divide", build)
    with everywhere.lease("divide", timeout=30) as session:
        with pytest.raises(ZeroDivisionError, match="by nothing"):
            session.run("output", {"a": 1})
        with pytest.raises(sojourn.InputError):
            session.run("nothing like it", {"a": 1})


def test_a_model_that_cannot_be_opened_says_why(everywhere: Cluster) -> None:
    everywhere.register("broken", "/there/is/no/such/model")
    with pytest.raises(sojourn.ModelError, match="no such"):
        everywhere.lease("broken", timeout=30)
    with pytest.raises(sojourn.ModelError, match="no model 'other' is registered"):
        everywhere.lease("other", timeout=5)


def test_a_model_that_fits_nowhere_is_not_waited_for_for_ever(
    everywhere: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "_HOPELESS_SECONDS", 0.5)
    everywhere.register("huge", models.adder, memory="64GiB")
    with pytest.raises(sojourn.PoolTimeout, match=r"within 0.1 s; 'huge' needs 64 GiB; the room"):
        everywhere.lease("huge", timeout=0.1)
    with pytest.raises(sojourn.BudgetExceeded, match=r"'huge' needs 64 GiB; the roomiest node"):
        everywhere.lease("huge")
    everywhere.register("drawing", models.adder, device="gpu")
    with pytest.raises(sojourn.DeviceError, match="no node has one"):
        everywhere.lease("drawing", timeout=20)


def test_copies_are_on_different_nodes_and_leases_are_spread(everywhere: Cluster) -> None:
    everywhere.register("add", models.adder, copies=2, pinned=True)
    wait_until(lambda: len(copies_of(everywhere, "add")) == 2)
    everywhere._take(everywhere._control.attach())
    with everywhere.lease("add", timeout=30) as one, everywhere.lease("add", timeout=30) as two:
        assert {one.node, two.node} == {"a", "b"}


def test_a_lease_that_nobody_renews_expires(
    nodes: StandIn, everywhere: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everywhere.register("add", models.adder)
    monkeypatch.setattr(handle, "KEEP_SECONDS", 0.5)
    monkeypatch.setattr(everywhere, "_renew_at", lambda link, leases: None)
    with everywhere.lease("add", timeout=30) as session:
        node = nodes.nodes.actors[session.node].agent
        wait_until(lambda: node._leases.count("add") == 0)
        with pytest.raises(sojourn.LeaseExpired, match=r"it was not renewed for 0\.5 s"):
            session.run("output", {"a": 1, "b": 2})


def test_a_lease_that_is_forgotten_is_reported_and_expires(
    nodes: StandIn, everywhere: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everywhere.register("add", models.adder)
    monkeypatch.setattr(handle, "KEEP_SECONDS", 0.5)
    with pytest.warns(ResourceWarning, match="lease of 'add' in the cluster, taken at .* never"):
        everywhere.lease("add", timeout=30)
    agents = [actor.agent for actor in nodes.nodes.actors.values()]
    wait_until(lambda: not any(agent._leases.count("add") for agent in agents))


def test_a_lease_that_is_renewed_lasts(
    everywhere: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everywhere.register("add", models.adder)
    with everywhere.lease("add", timeout=30) as session:
        held = everywhere._links[session.link.facts.node_id]
        everywhere._renew_at(held, [session])
        assert session.is_active


def test_leases_are_renewed_on_all_nodes_at_a_time(
    everywhere: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(everywhere, "_renew_all", lambda: None)  # not in between
    everywhere.register("add", models.adder, copies=2, pinned=True)
    wait_until(lambda: len(copies_of(everywhere, "add")) == 2)
    everywhere._take(everywhere._control.attach())
    both = threading.Barrier(2)  # neither node answers before the other one is asked
    asked: list[str] = []
    ask = links.Link.ask

    def ask_together(link: links.Link, body: Any, *given: Any) -> Any:
        if isinstance(body, words.KeepLeases):
            both.wait(2)
            asked.append(link.node)
        return ask(link, body, *given)

    with everywhere.lease("add", timeout=30) as one, everywhere.lease("add", timeout=30) as two:
        with monkeypatch.context() as patched:
            patched.setattr(links.Link, "ask", ask_together)
            Cluster._renew_all(everywhere)
        assert sorted(asked) == ["a", "b"]
        assert one.is_active
        assert two.is_active


def test_a_stale_table_is_corrected_by_the_agent_that_is_asked(everywhere: Cluster) -> None:
    everywhere.register("add", models.adder)
    with everywhere.lease("add", timeout=30) as session:
        here = session.link.facts.node_id
    other = {"a": "b", "b": "a"}[here]
    everywhere._routes["add"] = [other]  # as it may have been some time ago
    asked = []
    locate = everywhere._control.locate
    everywhere._control.locate = lambda *given: asked.append(given) or locate(*given)  # type: ignore[method-assign,func-returns-value]
    everywhere._plan = (0, 0)
    with everywhere.lease("add", timeout=30) as session:
        assert session.link.facts.node_id == here
    assert not asked  # the agent knew


def test_a_step_that_cannot_change_state_is_repeated_on_another_copy(
    nodes: StandIn, everywhere: Cluster
) -> None:
    everywhere.register("soft", models.softmax_regression, copies=2, pinned=True)
    wait_until(lambda: len(copies_of(everywhere, "soft")) == 2)
    with everywhere.lease("soft", timeout=30) as session:
        session.run("y", {"x": ONES})
        lost = session.node
        nodes.kill(lost)
        assert session.run("y", {"x": ONES}, timeout=30).shape == (2, 10)
        assert session.node != lost
        assert session.runs == 2


def test_a_step_that_may_have_changed_state_is_not_repeated(
    nodes: StandIn, everywhere: Cluster
) -> None:
    everywhere.register("counter", models.counter, copies=2, pinned=True)
    wait_until(lambda: len(copies_of(everywhere, "counter")) == 2)
    with everywhere.lease("counter", timeout=30) as session:
        assert session.run("total", {"amount": 1.0}) == 1.0
        nodes.kill(session.node)
        with pytest.raises(sojourn.SessionBroken, match="its outcome is unknown"):
            session.run("value")  # without effects, but what it would read is lost
        assert not session.is_active


def test_a_node_that_falls_silent_is_not_waited_for_longer_than_the_timeout(
    everywhere: Cluster,
) -> None:
    everywhere.register("sleep", models.sleeper)
    with everywhere.lease("sleep", timeout=30) as session:
        begun = time.monotonic()
        with pytest.raises(sojourn.StepTimeout, match="outcome"):
            session.run("output", {"seconds": 3.0}, timeout=0.2)
        assert time.monotonic() - begun < 3.0


def test_those_who_wait_without_a_timeout_are_told_when_their_node_is_lost(
    nodes: StandIn, everywhere: Cluster
) -> None:
    everywhere.register("sleep", models.sleeper)
    with everywhere.lease("sleep", timeout=30) as session:
        session.run("output", {"seconds": 0.0})
        told: list[BaseException] = []

        def wait() -> None:
            try:
                session.run("output", {"seconds": 60.0})
            except BaseException as error:
                told.append(error)

        waiter = threading.Thread(target=wait)
        waiter.start()
        agent = nodes.nodes.actors[session.node].agent
        wait_until(lambda: any(held.running for held in agent._leases._held.values()))
        nodes.kill(session.node)
        waiter.join(20)
        assert not waiter.is_alive()
        assert isinstance(told[0], sojourn.SessionBroken)
        assert "unknown" in str(told[0])


def test_what_a_lost_node_had_is_opened_elsewhere(nodes: StandIn, everywhere: Cluster) -> None:
    everywhere.register("add", models.adder, pinned=True)
    wait_until(lambda: copies_of(everywhere, "add"))
    [lost] = copies_of(everywhere, "add")
    nodes.kill(lost)
    wait_until(lambda: copies_of(everywhere, "add") and copies_of(everywhere, "add") != [lost])
    with everywhere.lease("add", timeout=30) as session:
        assert session.run("output", {"a": 1, "b": 2}) == 3


def test_a_node_that_joins_later_takes_part(nodes: StandIn, everywhere: Cluster) -> None:
    everywhere.register("add", models.adder, copies=3, pinned=True)
    wait_until(lambda: len(copies_of(everywhere, "add")) == 2)
    nodes.nodes.names.append("c")
    wait_until(lambda: len(copies_of(everywhere, "add")) == 3)


def test_a_controller_that_starts_anew_finds_everything_as_it_was(
    nodes: StandIn, everywhere: Cluster
) -> None:
    everywhere.register("counter", models.counter)
    with everywhere.lease("counter", timeout=30) as session:
        session.run("total", {"amount": 5.0})
        nodes.stop_controller()
        assert session.run("value") == 5.0  # nobody needs it for steps
        nodes.new_controller()
        everywhere._take(everywhere._control.attach())
        assert copies_of(everywhere, "counter") == [session.link.facts.node_id]
        assert everywhere.status()["epoch"] == 2
        assert session.run("value") == 5.0


def test_a_controller_that_starts_anew_waits_for_its_callers(
    nodes: StandIn, everywhere: Cluster
) -> None:
    everywhere.register("add", models.adder, copies=2, pinned=True)
    wait_until(lambda: len(copies_of(everywhere, "add")) == 2)
    nodes.stop_controller()
    controller = nodes.new_controller()
    nodes.do(controller.status())  # somebody looks at it before any caller is back
    first = [member.report for member in controller._members.values()]
    wait_until(lambda: first[0] is not next(iter(controller._members.values())).report)
    assert len(copies_of(everywhere, "add")) == 2
    assert not nodes.nodes.has_ended.is_set()


def test_orders_of_a_controller_that_was_replaced_are_refused(nodes: StandIn) -> None:
    agent = nodes.nodes.agent({"NodeID": "a"}).agent
    later, earlier = Epoch(2, "later"), Epoch(1, "earlier")
    assert agent.adopt(later) == later
    with pytest.raises(StaleEpoch, match="epoch 1 was replaced by 2"):
        agent.set_routes(earlier, 1, {})
    with pytest.raises(StaleEpoch):
        agent.set_routes(Epoch(2, "another"), 1, {})


def test_the_first_plan_of_a_controller_replaces_the_last_of_the_one_before(nodes: StandIn) -> None:
    agent = nodes.nodes.agent({"NodeID": "a"}).agent
    agent.set_routes(Epoch(1, "earlier"), 7, {"m": ["gone"]})
    agent.set_routes(Epoch(2, "later"), 1, {"m": ["b"]})
    moved = asyncio.run(agent._lease(None, words.LeaseModel("m", 1.0, 1.0, "")))
    assert moved == words.Moved((2, 1), ["b"])


def test_a_timeout_of_the_models_own_code_arrives_as_it_is(everywhere: Cluster) -> None:
    def build() -> Any:
        def late(a: Any) -> Any:
            raise TimeoutError("the shop does not answer")

        return late

    everywhere.register("late", build)
    with everywhere.lease("late", timeout=30) as session:
        with pytest.raises(TimeoutError, match="the shop does not answer"):
            session.run("output", {"a": 1.0})
        with pytest.raises(TimeoutError, match="the shop does not answer"):
            asyncio.run(session.arun("output", {"a": 1.0}))


def evict_all(nodes: Any) -> None:
    """Have every copy leave, as if its room were needed."""

    async def evict() -> None:
        controller = nodes.controller
        copies = list(controller._planner.books.copies)
        controller._perform(controller._planner._evict(copies, time.monotonic()))

    nodes.do(evict())


def test_what_has_to_leave_comes_back_on_another_node_bit_for_bit(tmp_path: Path) -> None:
    storage = f"file://{tmp_path}/states"
    with stand_in("a", storage=storage, memory=2**28) as nodes, nodes.connect() as everywhere:
        everywhere.register("training", pool_models.linear_regression)
        draw = np.random.default_rng(3)
        feeds = {"x": draw.normal(size=(8, 4)), "y": draw.normal(size=8)}
        with everywhere.lease("training", timeout=30) as session:
            for _ in range(5):
                session.run("train", feeds)
            before = session.run("w")
        wait_until(
            lambda: any(c.has_changed for c in nodes.controller._planner.books.copies.values())
        )
        nodes.nodes.names.append("b")
        wait_until(lambda: len(everywhere.status()["nodes"]) == 2)

        evict_all(nodes)
        wait_until(lambda: copies_of(everywhere, "training") == [])
        with everywhere.lease("training", timeout=30) as session:
            assert session.node == "b"
            assert session.run("w").tobytes() == before.tobytes()
            session.run("train", feeds)
            assert session.run("w").tobytes() != before.tobytes()


def test_a_copy_whose_worker_died_comes_back_with_the_state_that_was_kept(tmp_path: Path) -> None:
    storage = f"file://{tmp_path}/states"
    with stand_in("a", storage=storage) as nodes, nodes.connect() as everywhere:
        everywhere.register("counter", models.counter)

        with everywhere.lease("counter", timeout=30) as session:
            session.run("total", {"amount": 3.0})
        evict_all(nodes)  # before any report has said that it has changed
        wait_until(lambda: copies_of(everywhere, "counter") == [])
        with everywhere.lease("counter", timeout=30) as session:
            assert session.run("value") == 3.0
            os.kill(session.pid, signal.SIGKILL)
            with pytest.raises((sojourn.SessionBroken, sojourn.LeaseExpired)):
                session.run("total", {"amount": 1.0})
        with everywhere.lease("counter", timeout=30) as session:
            assert session.run("value") == 3.0
        everywhere.unregister("counter")
        wait_until(lambda: not list((tmp_path / "states").rglob("current")))


def test_state_is_saved_to_and_restored_from_a_url(everywhere: Cluster, tmp_path: Path) -> None:
    everywhere.register("counter", models.counter)
    with everywhere.lease("counter", timeout=30) as session:
        session.run("total", {"amount": 7.0})
        session.save(tmp_path / "seven")
        session.run("total", {"amount": 1.0})
        session.restore(f"file://{tmp_path}/seven")
        assert session.run("value") == 7.0
        session.reset()
        assert session.run("value") == 0.0


def test_nothing_listens_to_a_caller_without_the_token(nodes: StandIn, everywhere: Cluster) -> None:
    facts = everywhere._links["a"].facts
    with pytest.raises((ConnectionError, frames.BrokenFrame)):
        Line(facts.address, b"guessed", 5.0)
    with socket.create_connection(facts.address, 5.0) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" + bytes(64))
        assert stranger.recv(1) == b""  # it hung up
    line = Line(facts.address, facts.token, 5.0)
    try:
        line._socket.sendall(frames.PREFIX.pack(frames.MAGIC, 2**31 - 1, 0))
        with pytest.raises(ConnectionError):
            line.ask(words.GiveBack(1))
    finally:
        line.close()


def test_a_connection_to_an_agent_that_says_nothing_is_given_up_and_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links, "CONNECT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(30)
        link = links.Link(AgentFacts("a", "a", silent.getsockname(), b"token", "", 0, 1, ()))
        with pytest.raises(NodeLost):
            asyncio.run(link.aask(words.GiveBack(1)))
        assert link._ends == {}
        accepted, _ = silent.accept()
        with accepted:
            accepted.settimeout(30)
            assert len(accepted.recv(1024)) > 0  # its greeting
            assert accepted.recv(1024) == b""


def test_an_agent_that_has_ended_closes_a_connection_that_was_being_made() -> None:
    end = AgentEnd(b"token", lambda *_: None, lambda *_: None)
    end.abort()
    transport = Mock()
    end.connection_made(transport)
    transport.abort.assert_called_once_with()


def test_memory_that_a_step_still_reads_is_not_received_into_again() -> None:
    end = AgentEnd(b"token", lambda *_: None, lambda *_: None)
    size = 2**20
    first = end.room_for(size)
    array = frames.unpack_arrays([("float32", (4, 4), 64)], first)[0]
    del first
    second = end.room_for(size)
    assert not np.shares_memory(array, second)
    address = second.ctypes.data
    del second
    assert end.room_for(size).ctypes.data == address  # nobody had it any more
    del array, end


def test_the_last_caller_takes_everything_along(nodes: StandIn) -> None:
    one, two = nodes.connect(), nodes.connect()
    one.register("add", models.adder, pinned=True)
    one.close()
    assert not nodes.nodes.has_ended.is_set()
    two.close()
    assert nodes.nodes.has_ended.wait(10)
    with pytest.raises(sojourn.SessionClosed):
        two.lease("add")


def test_a_caller_that_is_not_heard_of_is_gone(nodes: StandIn) -> None:
    silent = nodes.connect()
    silent._control.beat = lambda holds: None  # type: ignore[method-assign]
    assert nodes.nodes.has_ended.wait(20)
    silent._control.detach = lambda: None  # type: ignore[method-assign]
    silent.close()


def test_a_link_to_a_lost_node_says_so(nodes: StandIn, everywhere: Cluster) -> None:
    link = everywhere._links["a"]
    nodes.kill("a")
    with pytest.raises(NodeLost):
        link.ask(words.GiveBack(1), (), time.monotonic() + 5)


def test_a_name_that_cannot_be_sent_is_no_lost_node(everywhere: Cluster) -> None:
    everywhere.register("echo", lambda: lambda a: a)
    with everywhere.lease("echo", timeout=30) as session:
        with pytest.raises(UnicodeEncodeError):
            session.run("\ud800", {"a": 1.0})
        assert not session.link.is_suspect
        assert session.run("output", {"a": 1.0}) == 1.0
