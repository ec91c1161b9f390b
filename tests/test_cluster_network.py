"""The network between a caller and an agent is cut: the agent is in a namespace of its own."""

from __future__ import annotations

import base64
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sojourn
from sojourn.cluster import Cluster, handle
from sojourn.cluster.control import Control
from sojourn.cluster.orders import Table
from sojourn.cluster.terms import AgentFacts

NAME = f"sjn{os.getpid() % 100000}"
NEAR, FAR = "10.231.77.1", "10.231.77.2"
HERE = Path(__file__).parent


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def far() -> Iterator[subprocess.Popen[str]]:
    """An agent behind a link of its own."""
    if os.getuid() != 0 or shutil.which("ip") is None:
        pytest.skip("only root can make a network namespace")
    try:
        ip("netns", "add", NAME)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespace can be made here: {error.stderr!r}")
    try:
        ip("link", "add", NAME, "type", "veth", "peer", "name", "far", "netns", NAME)
        ip("addr", "add", f"{NEAR}/24", "dev", NAME)
        ip("link", "set", NAME, "up")
        ip("-n", NAME, "addr", "add", f"{FAR}/24", "dev", "far")
        ip("-n", NAME, "link", "set", "far", "up")
        program = [sys.executable, str(HERE / "cluster_agent_program.py"), FAR]
        paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": paths}
        with subprocess.Popen(
            ["ip", "netns", "exec", NAME, *program],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                assert process.stdin is not None
                process.stdin.close()
                process.wait(60)
    finally:
        subprocess.run(["ip", "link", "del", NAME], capture_output=True)
        ip("netns", "del", NAME)


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def connected(facts: AgentFacts) -> Cluster:
    table = Table((1, 1), {"sleep": ["far"]}, {"far": facts})

    def call(method: str, *given: Any, timeout: float | None) -> Any:
        return table if method in ("attach", "locate") else None

    return Cluster(Control(call, lambda: None))


def test_no_request_waits_longer_than_it_may_when_the_network_is_cut(
    far: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handle, "KEEP_SECONDS", 4.0)
    monkeypatch.setattr(handle, "_ANSWER_SECONDS", 2.0)
    facts = pickle.loads(base64.b64decode(next_line(far)))
    with connected(facts) as everywhere, everywhere.lease("sleep", timeout=30) as session:
        assert next_line(far) == "1"
        assert session.run("output", {"seconds": 0.0}) == 0.0
        told: list[BaseException] = []

        def wait_for_ever() -> None:
            try:
                session.run("output", {"seconds": 0.5})
            except BaseException as error:
                told.append(error)

        waiter = threading.Thread(target=wait_for_ever)
        waiter.start()
        time.sleep(0.1)  # the step is on its way, its answer will not arrive
        ip("link", "set", NAME, "down")
        begun = time.monotonic()
        with pytest.raises((sojourn.StepTimeout, sojourn.SessionBroken), match="unknown"):
            session.run("output", {"seconds": 0.0}, timeout=1.0)
        assert time.monotonic() - begun < 10
        waiter.join(30)
        assert not waiter.is_alive()
        assert isinstance(told[0], sojourn.SessionBroken)
        assert "outcome is unknown" in str(told[0])
        assert next_line(far) == "0"  # the agent has ended the lease by itself
        ip("link", "set", NAME, "up")
        with everywhere.lease("sleep", timeout=60) as again:
            assert again.run("output", {"seconds": 0.0}, timeout=30) == 0.0
