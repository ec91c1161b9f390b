"""`sojourn nodes`: what it prints of a cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from sojourn.cli.main import main

pytest.importorskip("ray")

FOUND: dict[str, Any] = {
    "epoch": 1,
    "callers": 1,
    "models": ["resnet"],
    "lost": ["training: what it had learnt was on 3f2a1c only"],
    "nodes": [
        {
            "node": "one/3f2a1c",
            "id": "3f2a1c",
            "address": "10.0.0.1:4000",
            "devices": ["cpu"],
            "budget_bytes": 8 * 2**30,
            "held_bytes": 2**28,
            "calls": 2,
            "copies": [
                {"model": "resnet", "state": "open", "bytes": 2**28, "leases": 1, "runs": 7}
            ],
        }
    ],
}


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    answers: list[Any] = [FOUND]
    monkeypatch.setattr("sojourn.cluster.connecting.look", lambda *_, **__: answers[0])
    return answers


def test_it_lists_nodes_budgets_and_copies(looked: list[Any]) -> None:
    done = CliRunner().invoke(main, ["nodes"])
    assert done.exit_code == 0
    assert done.output.splitlines() == [
        "node        holds    of       calls  model   state  size     leases  runs",
        "one/3f2a1c  256 MiB  8.0 GiB  2      resnet  open   256 MiB  1       7",
        "training: what it had learnt was on 3f2a1c only",
    ]


def test_it_gives_the_same_as_data(looked: list[Any]) -> None:
    done = CliRunner().invoke(main, ["nodes", "--json"])
    assert json.loads(done.output)["nodes"] == FOUND["nodes"]


def test_a_cluster_that_nobody_uses_is_said_to_be_one(looked: list[Any]) -> None:
    looked[0] = None
    done = CliRunner().invoke(main, ["nodes"])
    assert (done.exit_code, done.output) == (1, "no program is connected to this cluster\n")
