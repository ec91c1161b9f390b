"""The cluster on real Ray nodes: one program, whose findings the tests judge.

What several nodes on one machine cannot show: two kernels, a network that loses packets, clocks
that differ.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sojourn.probes import processes
from sojourn.testing.snapshots import RUN

pytest.importorskip("ray")
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    mark = f"{os.environ[RUN]}.ray"
    # A path of a Unix socket has 107 characters at most, and Ray's own take sixty.
    short = f"/tmp/r{os.getpid()}"
    os.mkdir(short)
    os.mkdir(f"{short}/gcs")
    environment = {
        **os.environ,
        RUN: mark,
        "HOME": short,
        "SOJOURN_PRELOAD": "none",  # no model is TensorFlow's
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_gcs_storage": "rocksdb",  # so that Ray's head can be lost and come back
        "RAY_gcs_storage_path": f"{short}/gcs",
        "TMPDIR": short,
        "RAY_TMPDIR": short,
        "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
    }
    try:
        done = subprocess.run(
            [sys.executable, str(HERE / "ray_program.py")],
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
    finally:
        deadline = time.monotonic() + 20
        while processes.started_with(RUN, mark) and time.monotonic() < deadline:
            time.sleep(0.05)
        subprocess.run(["rm", "-rf", short], check=True)
    assert processes.started_with(RUN, mark) == [], "processes are left"
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]  # Ray has its own
    assert lines, done.stdout[-2000:] + done.stderr[-4000:]
    facts: dict[str, Any] = json.loads(lines[-1])
    assert "failed" not in facts, f"{facts}\n{done.stderr[-4000:]}"
    return facts


def test_agents_are_on_all_nodes_also_on_one_that_joins_later(found: dict[str, Any]) -> None:
    assert found["nodes"] == 2
    assert found["squares"] == [0, 1, 4, 9]
    assert found["receipt node"].startswith("127.0.0.")


def test_workers_end_with_their_agent_and_steps_go_on_elsewhere(found: dict[str, Any]) -> None:
    assert found["seconds until the worker was gone"] < 10


def test_a_killed_controller_is_replaced_and_no_copy_is_touched(found: dict[str, Any]) -> None:
    assert found["worker stayed"]
    assert found["copies after the controller"] == 2


def test_callers_see_no_error_when_a_node_is_lost_under_them(found: dict[str, Any]) -> None:
    assert found["errors"] == []
    counts = found["counts"]
    assert (counts["failed"], counts["lost"], counts["late"]) == (0, 0, 0)


def test_steps_go_on_while_rays_head_is_away_and_all_is_there_when_it_is_back(
    found: dict[str, Any],
) -> None:
    assert found["steps without Ray's head"] > 0
    assert found["every step counted once"]
    assert found["worker outlived Ray's head"]


def test_a_front_on_every_node_answers_and_ends_with_the_command(found: dict[str, Any]) -> None:
    assert found["fronts"] == 2, found["serve said"]
    assert found["answers"] == [[8], [8]]
    assert found["serve ended by SIGTERM with"] == 0
    assert found["left by the server"] == []


def test_nothing_is_left_when_the_serving_command_is_killed(found: dict[str, Any]) -> None:
    assert found["serve ended by SIGKILL with"] == -9
    assert found["left by a killed server"] == []


def test_nothing_is_left_after_close(found: dict[str, Any]) -> None:
    assert found["left"] == []


def test_nothing_is_left_when_ray_is_shut_down_under_a_connection(found: dict[str, Any]) -> None:
    assert "Ray was shut down" in found["after ray.shutdown()"]
    assert found["Ray was started by nobody"]
    assert found["left by ray.shutdown()"] == []
