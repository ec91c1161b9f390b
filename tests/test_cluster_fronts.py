"""`sojourn serve --cluster`: fronts of several nodes, in this process instead of on Ray."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

import models
import served_models
from cluster_stand_in import StandIn
from faults.tools import wait_until
from sojourn.cli.server_client import Client, ServerError
from sojourn.cluster import Cluster
from sojourn.cluster.orders import Settings
from sojourn.cluster.serving.front import Front
from sojourn.service.config import read_config
from sojourn.service.tokens import Role, Tokens

pytestmark = pytest.mark.usefixtures("zygote")
# libuv has a pipe for signals, which it makes with its first loop and keeps until the exit.
uvloop.new_event_loop().close()
ROW = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 1, 1, 1]}


class Node:
    """A front, and ways to ask it."""

    def __init__(self, everywhere: Cluster, folder: Path, others: list[Node], **flags: Any) -> None:
        config = read_config(
            None,
            {},
            {"paths": (str(folder),), "http": "127.0.0.1:0", "grpc": "", "watch": 0.1, **flags},
        )
        self.everywhere = everywhere
        self.others = others
        self.front = Front(everywhere, config, Tokens(), self._tell)
        addresses = self.front.start(others[0].front.outs() if others else [])
        self.client = Client(f"http://{addresses['http']}")

    def _tell(self, what: str, name: str, version: int | None) -> None:
        for other in self.others:
            if other is not self:
                getattr(other.front, what)(name, version)

    def infer(self, model: str = "times") -> Any:
        path = f"/v2/models/{model}/infer"
        return self.client.ask("POST", path, {"inputs": [ROW]})["outputs"][0]["data"]


@contextmanager
def fronts(nodes: StandIn, folder: Path, count: int = 2, **flags: Any) -> Iterator[list[Node]]:
    with ExitStack() as stack:
        found: list[Node] = []
        for _ in range(count):
            everywhere = stack.enter_context(nodes.connect())
            node = Node(everywhere, folder, found, **flags)
            stack.callback(node.front.close, 5.0)
            found.append(node)
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    served_models.write_version(tmp_path / "models" / "times", 2)
    return tmp_path / "models"


def test_any_front_answers_for_any_model_and_it_is_open_once(nodes: StandIn, folder: Path) -> None:
    with fronts(nodes, folder) as (one, two):
        assert one.infer() == two.infer() == [8]
        one.everywhere.register("add", models.adder)
        feeds = [
            {"name": name, "shape": [], "datatype": "INT64", "data": [2]} for name in ("a", "b")
        ]
        wait_until(lambda: "add" in two.front._pool.names())
        answer = two.client.ask("POST", "/v2/models/add/infer", {"inputs": feeds})
        assert answer["outputs"][0]["data"] == [4]
        copies = [c["model"] for n in one.everywhere.status()["nodes"] for c in n["copies"]]
        assert sorted(copies) == ["add", "times:2"]
        status = two.client.ask("GET", "/admin/status")
        assert {model["name"] for model in status["models"]} == {"times", "add"}
        assert status["memory"]["limit_bytes"] == 2 * 2**30


def test_what_is_unloaded_at_one_front_is_unloaded_at_all(nodes: StandIn, folder: Path) -> None:
    with fronts(nodes, folder) as (one, two):
        assert two.infer() == [8]
        one.client.ask("POST", "/admin/models/times/unload")
        for node in (one, two):
            with pytest.raises(ServerError, match="unloaded by request"):
                node.infer()
        assert not any(node["copies"] for node in one.everywhere.status()["nodes"])
        with nodes.connect() as everywhere:  # a node that joins now
            three = Node(everywhere, folder, [one, two])
            try:
                with pytest.raises(ServerError, match="unloaded by request"):
                    three.infer()
            finally:
                three.front.close(5.0)
        two.client.ask("POST", "/admin/models/times/load")
        assert one.infer() == [8]


def test_a_new_version_takes_over_and_the_old_one_leaves_the_cluster(
    nodes: StandIn, folder: Path
) -> None:
    with fronts(nodes, folder) as (one, two):
        assert one.infer() == two.infer() == [8]
        served_models.write_version(folder / "times", 3)
        wait_until(lambda: one.infer() == two.infer() == [12])
        wait_until(lambda: one.everywhere.status()["models"] == ["times:3"])


def test_requests_go_on_when_a_node_is_lost(
    nodes: StandIn, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sojourn.cluster.serving.pool.IDLE_SECONDS", 60.0)
    with fronts(nodes, folder, count=1, copies=2) as (one,):
        assert one.infer() == [8]
        wait_until(lambda: len(one.everywhere._routes.get("times:2", ())) == 2)
        assert one.infer() == [8]
        [lease] = [lease for lease in one.everywhere._leases if lease.is_active]
        nodes.kill(lease.node)
        assert one.infer() == [8]


def test_models_leave_with_the_last_front(nodes: StandIn, folder: Path) -> None:
    with nodes.connect() as everywhere:
        with fronts(nodes, folder, count=1, keep_alive="1h") as (one,):
            assert one.infer() == [8]
            assert everywhere.status()["models"] == ["times:2"]
        wait_until(lambda: everywhere.status()["models"] == [])
        wait_until(lambda: not any(node["copies"] for node in everywhere.status()["nodes"]))


def test_a_model_that_was_evicted_comes_back(nodes: StandIn, folder: Path) -> None:
    with fronts(nodes, folder, count=1) as (one,):
        assert one.infer() == [8]
        assert one.client.ask("POST", "/admin/models/times/evict") == {"evicted": True}
        assert not any(node["copies"] for node in one.everywhere.status()["nodes"])
        assert one.infer() == [8]
        one.client.ask("POST", "/admin/models/times/pin")
        wait_until(lambda: nodes.controller._sources["times:2"].pinned)


class Actor:
    """Called as Ray's actors are, and started again as Ray does: with what it was given first."""

    def __init__(self, kind: Any, *given: Any) -> None:
        self.kind, self.given = kind, given
        self.it = kind(*given)

    def dies(self) -> None:
        self.it.close(0.0)
        self.it = self.kind(*self.given)

    def __getattr__(self, name: str) -> Any:
        def remote(*given: Any) -> Future[Any]:
            answer: Future[Any] = Future()
            try:
                answer.set_result(getattr(self.it, name)(*given))
            except Exception as error:
                answer.set_exception(error)
            return answer

        return SimpleNamespace(remote=remote)


def test_a_front_that_is_started_again_serves_by_the_tokens_of_now(
    nodes: StandIn, everywhere: Cluster, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fronts_module = pytest.importorskip("sojourn.cluster.serving.fronts")
    actors: list[Actor] = []

    def new(kind: Any, *given: Any) -> Actor:
        actors.append(Actor(kind, *given))
        return actors[-1]

    stand_in = SimpleNamespace(
        remote=lambda kind: SimpleNamespace(
            options=lambda **_: SimpleNamespace(remote=lambda *given: new(kind, *given))
        ),
        get=lambda answer, timeout=None: answer.result(),
        wait=lambda answers, **_: (answers, []),
        kill=lambda actor, **_: None,
        exceptions=fronts_module.ray.exceptions,
    )
    monkeypatch.setattr(fronts_module, "ray", stand_in)
    monkeypatch.setattr(fronts_module, "joined", lambda settings: nodes.connect())
    monkeypatch.setattr(fronts_module.FrontActor, "_others", lambda self: [])
    flags = {"paths": (str(folder),), "http": "127.0.0.1:0", "grpc": ""}
    config = read_config(None, {}, flags)
    first, second = (Tokens([(Role.ADMIN, name)]) for name in ("first", "second"))
    fronts = fronts_module.Fronts(config, first, Settings(), lambda wish: None)
    node = {"NodeID": "a", "NodeName": "a", "NodeManagerHostname": "a"}
    fronts._nodes = SimpleNamespace(alive=lambda: {"a": node})

    def status(token: str) -> Any:
        [addresses] = fronts.facts["fronts"].values()
        return Client(f"http://{addresses['http']}", token=token).ask("GET", "/admin/status")

    fronts.start()
    try:
        assert status("first")["models"]
        fronts.reload(config, second, [])
        assert status("second")["models"]
        before = fronts.facts["fronts"]
        actors[0].dies()
        wait_until(lambda: fronts.facts["fronts"] != before)
        assert status("second")["models"]
        with pytest.raises(ServerError, match="token"):
            status("first")
    finally:
        fronts.close(0.0)
