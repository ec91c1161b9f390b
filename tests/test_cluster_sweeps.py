"""Isolated functions on the nodes of a cluster, with agents in this process instead of on Ray."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import sojourn
from cluster_stand_in import StandIn, stand_in
from sojourn.cluster import Cluster

pytestmark = pytest.mark.usefixtures("zygote")


@sojourn.isolated
def square(x: float) -> tuple[float, int]:
    return x * x, os.getpid()


@sojourn.isolated(seed=7)
def draw(shape: int) -> np.ndarray:
    return np.random.default_rng(shape).normal(size=(shape, 1000))


@sojourn.isolated
def fail(x: int) -> int:
    if x == 2:
        raise LookupError("two")
    return x


@sojourn.isolated
def wait_for(path: str, begun: str) -> str:
    Path(begun).touch()
    while not Path(path).exists():
        time.sleep(0.01)
    return "done"


def test_results_are_in_order_and_every_call_has_a_worker_of_its_own(everywhere: Cluster) -> None:
    results = square.map(range(6), on=everywhere, quiet=True)
    assert [value for value, _ in results] == [0, 1, 4, 9, 16, 25]
    pids = {pid for _, pid in results}
    assert len(pids) == 6
    assert os.getpid() not in pids


def test_the_receipt_names_the_node(everywhere: Cluster) -> None:
    square.map([3], on=everywhere, quiet=True)
    receipt = square.receipt
    assert receipt is not None
    assert receipt.node in ("a", "b")
    assert receipt.clean
    assert str(receipt).endswith(f"on node {receipt.node}")


def test_large_results_arrive_as_they_are_at_home(everywhere: Cluster) -> None:
    [there] = draw.map([300], on=everywhere, quiet=True)
    assert np.array_equal(there, draw(300))


def test_an_error_arrives_in_its_own_type_with_its_sweep(everywhere: Cluster) -> None:
    with pytest.raises(LookupError, match="two") as caught:
        fail.map([1, 2, 3], on=everywhere, quiet=True, workers=1)
    assert caught.value.sweep.results == {0: 1}  # type: ignore[attr-defined]
    assert isinstance(fail.map([2], on=everywhere, quiet=True, on_error="return")[0], LookupError)


def test_calls_are_spread_over_the_nodes(everywhere: Cluster) -> None:
    assert everywhere.workers("auto") == 4
    with everywhere.calling(()) as one, everywhere.calling(()) as two:
        assert {one.node, two.node} == {"a", "b"}


def _lose_a_node_in_the_middle(
    nodes: StandIn, everywhere: Cluster, tmp_path: Path, repeatable: bool
) -> list[object]:
    """Two calls wait, one on each node; one node is lost, then both may go on."""
    go, begun = tmp_path / "go", [tmp_path / "one", tmp_path / "two"]

    def lose() -> None:
        while not all(path.exists() for path in begun):
            time.sleep(0.01)
        nodes.kill("a")
        go.touch()

    loser = threading.Thread(target=lose)
    loser.start()
    try:
        return wait_for.map(  # type: ignore[return-value]
            [str(go)] * 2,
            map(str, begun),
            on=everywhere,
            quiet=True,
            workers=2,
            on_error="return",
            repeatable=repeatable,
        )
    finally:
        loser.join()


def test_calls_of_a_lost_node_are_reported(
    nodes: StandIn, everywhere: Cluster, tmp_path: Path
) -> None:
    results = _lose_a_node_in_the_middle(nodes, everywhere, tmp_path, repeatable=False)
    [lost] = [result for result in results if result != "done"]
    assert isinstance(lost, sojourn.SessionBroken)
    assert "outcome is unknown; with repeatable=True" in str(lost)


def test_calls_of_a_lost_node_are_made_again_if_they_may_be(
    nodes: StandIn, everywhere: Cluster, tmp_path: Path
) -> None:
    results = _lose_a_node_in_the_middle(nodes, everywhere, tmp_path, repeatable=True)
    assert results == ["done", "done"]


def test_functions_that_need_a_gpu_go_where_there_are_some() -> None:
    with stand_in("a", "b") as nodes:
        nodes.nodes.gpus["b"] = 3
        with nodes.connect() as everywhere:
            assert (everywhere.workers("gpu"), everywhere.workers("auto")) == (3, 4)
            for _ in range(3):
                with everywhere.calling((), "gpu") as link:
                    assert link.node == "b"
                    assert link.facts.devices == ("cpu", "gpu")
