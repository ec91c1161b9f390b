"""Callers that go before they have what they asked for, and files that are sent ahead of a name."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import models
import served_models
import sojourn
from cluster_stand_in import StandIn, stand_in
from faults.tools import wait_until
from sojourn.cluster import Cluster, files, links
from sojourn.cluster.calls import Calls
from sojourn.cluster.links import Link, NodeLost
from sojourn.cluster.terms import ModelSource
from sojourn.cluster.wire import awaited, words
from sojourn.cluster.wire.blocking import Line
from sojourn.engines import parcels

pytestmark = pytest.mark.usefixtures("zygote")


def test_a_model_that_is_sent_along_may_be_behind_links(tmp_path: Path) -> None:
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    (blobs / "one").write_bytes(served_models.times(2))
    (tmp_path / "v2").mkdir()
    (tmp_path / "v2" / "model.onnx").symlink_to(blobs / "one")
    (tmp_path / "current").symlink_to(tmp_path / "v2")
    with stand_in("a") as nodes, nodes.connect() as everywhere:
        everywhere.register("times", tmp_path / "current" / "model.onnx", send=True)
        everywhere.register("folder", tmp_path / "current", send=True)
        with everywhere.lease("times", timeout=30) as session:
            assert session.run("y", {"x": np.ones((1, 4), np.float32)}) == [[8]]
        agent = nodes.nodes.actors["a"].agent
        path = agent._files.path_of(nodes.controller._sources["folder"], ())
        assert Path(path, "model.onnx").read_bytes() == served_models.times(2)


def test_what_was_sent_stays_until_its_model_is_registered(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"weights")
    parcel, digest = files.pack(str(tmp_path / "model"))
    try:
        (tmp_path / "brought").mkdir()
        brought = files.Files(str(tmp_path / "brought"))
        data = np.fromfile(parcel, np.uint8)
        assert brought.store(digest, 0, len(data), data) == len(data)
        source = ModelSource("m", "model", digest)
        brought.keep_only(dict)  # another model was unregistered
        assert Path(brought.path_of(source, ())).read_bytes() == b"weights"
        brought.keep_only(lambda: {"m": source})
        assert Path(brought.path_of(source, ())).read_bytes() == b"weights"
        brought.keep_only(dict)
        assert os.listdir(tmp_path / "brought") == []
    finally:
        os.unlink(parcel)


def test_a_lease_for_a_caller_that_has_gone_meanwhile_is_ended_at_once(
    nodes: StandIn, everywhere: Cluster
) -> None:
    everywhere.register("counter", models.counter, exclusive=True)
    with everywhere.lease("counter", timeout=30) as session:
        agent, facts = nodes.nodes.actors[session.node].agent, session.link.facts
        line = Line(facts.address, facts.token, 5.0)
        try:
            with pytest.raises(TimeoutError):
                line.ask(words.LeaseModel("counter", 30.0, 30.0, ""), (), time.monotonic() + 0.2)
        finally:
            line.close()
        wait_until(lambda: not any(end.sharing is None for end in agent._ends))
    wait_until(lambda: agent._leases.count("counter") == 0)
    wait_until(lambda: any("gone" in why for why in agent._leases._ended.values()))


def test_a_function_that_is_cut_off_before_its_arguments_have_come_does_not_run(
    tmp_path: Path,
) -> None:
    begun = tmp_path / "begun"
    calls, number = Calls("a"), secrets.randbits(63)
    arrays = parcels.pack((Path.touch, (begun,), {}))
    ask = words.CallFunction(number, "touch", "touch", None, None, "cpu", None, False)
    calls.cut_off(number)
    reply, _ = asyncio.run(calls.call(None, ask, arrays))
    assert isinstance(reply, words.Failed)
    assert not begun.exists()


def test_an_agent_has_the_kernel_ask_whether_its_callers_are_there(
    nodes: StandIn, everywhere: Cluster
) -> None:
    facts = everywhere._links["a"].facts
    line = Line(facts.address, facts.token, 5.0)
    try:
        agent = nodes.nodes.actors["a"].agent
        ends = [end.transport.get_extra_info("socket") for end in agent._ends]
        [accepted] = [end for end in ends if end.family == socket.AF_INET]
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    finally:
        line.close()


def test_a_link_that_is_cut_while_it_connects_keeps_nobody_waiting(
    everywhere: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Link(everywhere._links["a"].facts)

    class Late(Line):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            link.cut()

    monkeypatch.setattr(links, "Line", Late)
    with pytest.raises(NodeLost):
        link.ask(words.GiveBack(1))

    awaited = Link(everywhere._links["a"].facts)
    made = awaited._made

    async def late(loop: Any) -> Any:
        found = await made(loop)
        awaited.cut()
        return found

    monkeypatch.setattr(awaited, "_made", late)
    with pytest.raises(NodeLost):
        asyncio.run(awaited.aask(words.GiveBack(1)))


def test_an_agent_that_took_long_to_start_is_not_taken_for_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    actors = pytest.importorskip("sojourn.cluster.actors")
    now = [0.0]
    ended = threading.Event()

    class Agent:
        def __init__(self, *given: Any) -> None: ...

        async def start(self, host: str) -> Any:
            now[0] += 300.0
            return "facts"

        async def end(self) -> None:
            ended.set()

    monkeypatch.setattr(actors, "Agent", Agent)
    monkeypatch.setattr(actors, "ray", SimpleNamespace(get_gpu_ids=list))
    monkeypatch.setattr(actors, "_end_this_actor", ended.set)
    monkeypatch.setattr(actors.time, "monotonic", lambda: now[0])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert actors._ALONE_SECONDS > actors.MEET_SECONDS  # for which a controller may hear of nobody

    async def start() -> None:
        node = {"NodeID": "a", "NodeManagerAddress": "", "Resources": {}}
        actor = actors.AgentActor(node, sojourn.cluster.orders.Settings())
        assert await actor.start() == "facts"
        await asyncio.sleep(0)
        actor._watching.cancel()

    asyncio.run(start())
    assert not ended.is_set()


def test_whoever_connects_while_an_agent_ends_is_let_go_of() -> None:
    made: list[asyncio.BaseTransport] = []

    class Kept(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.append(transport)

    async def connect_and_end() -> int:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Kept, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        callers: list[socket.socket] = []

        def one_more() -> None:
            if len(callers) < 60:  # one in each turn of the loop: some is just being accepted
                callers.append(socket.socket())
                callers[-1].setblocking(False)
                callers[-1].connect_ex(address)
                loop.call_soon(one_more)

        one_more()
        await asyncio.sleep(0)
        await awaited.stop_listening(server)
        await asyncio.sleep(0)
        for transport in made:
            transport.abort()  # type: ignore[attr-defined]
        made.clear()
        while len(callers) < 60:
            await asyncio.sleep(0)
        for caller in callers:
            caller.close()
        return len(callers)

    for _ in range(30):  # what was lost in one of them is still open at the end
        assert asyncio.run(connect_and_end()) == 60
