"""A program on three Ray nodes of this machine that prints its findings as JSON.

It has a home, a temporary folder and addresses of its own, so that Ray neither writes below the
user's home nor looks for an address outside. Each node has an address of its own (127.0.0.2, ...).
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import ray
from ray.cluster_utils import Cluster

import served_models
import sojourn
import sojourn.cluster as cluster
from sojourn.cli.server_client import Client

FOURS = "y", {"x": np.ones((1, 4), np.float32)}
SECONDS = 90.0


@sojourn.isolated
def square(x: int) -> int:
    return x * x


def counter() -> Any:
    """A plain function that keeps what it was given."""
    total = 0.0

    def add(amount: Any) -> float:
        nonlocal total
        total += float(amount)
        return total

    return add


def eventually(holds: Callable[[], Any], what: str) -> float:
    """Wait until the condition holds, and return the seconds that it took."""
    begun = time.monotonic()
    print("until", what, file=sys.stderr, flush=True)
    while not holds():
        if time.monotonic() - begun > SECONDS:
            raise TimeoutError(what)
        time.sleep(0.05)
    return time.monotonic() - begun


def processes_of(title: str) -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if any(title in part for part in process.cmdline()[:1]):
                found.append(process)
        except psutil.Error:
            pass  # the process has ended
    return found


def below(node: Any, title: str) -> psutil.Process:
    """Return the process with this title on a node."""
    [raylet] = node.all_processes["raylet"]
    ours = {child.pid for child in psutil.Process(raylet.process.pid).children(recursive=True)}
    return next(process for process in processes_of(title) if process.pid in ours)


def answers(ask: Callable[[], Any]) -> bool:
    try:
        ask()
    except Exception:
        return False
    return True


def infer(address: str) -> Any:
    row = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 1, 1, 1]}
    answer = Client(f"http://{address}").ask("POST", "/v2/models/times/infer", {"inputs": [row]})
    return answer["outputs"][0]["data"]


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


class Program:
    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self.model = pathlib.Path(os.environ["RAY_TMPDIR"]) / "times.onnx"
        self.model.write_bytes(served_models.times(2))
        options = {"num_cpus": 2, "object_store_memory": 80 * 2**20, "memory": 2**30}
        head = {
            **options,
            "node_ip_address": "127.0.0.2",
            "include_dashboard": False,
            "_system_config": {  # Ray notices a lost node within a second
                "health_check_period_ms": 500,
                "health_check_timeout_ms": 500,
                "health_check_failure_threshold": 2,
                "health_check_initial_delay_ms": 0,
            },
        }
        self.options = options
        self.ray = Cluster(initialize_head=True, head_node_args=head)
        self.nodes = {"127.0.0.2": self.ray.head_node}
        self.add_node("127.0.0.3")

    def add_node(self, address: str) -> None:
        self.nodes[address] = self.ray.add_node(node_ip_address=address, **self.options)

    def node_of(self, session: Any) -> Any:
        return self.nodes[session.link.facts.address[0]]

    def copies(self, everywhere: Any) -> int:
        nodes = everywhere.status()["nodes"]
        return sum(c["state"] == "open" for node in nodes for c in node["copies"])

    def has_left(self, everywhere: Any, address: str) -> bool:
        return address not in [node["address"] for node in everywhere.status()["nodes"]]

    def run(self) -> None:
        ray.init(address=self.ray.address, _node_ip_address="127.0.0.2", log_to_driver=False)
        try:
            with cluster.connect() as everywhere:
                self.use(everywhere)
                self.found["status"] = everywhere.status()
            self.found["left"] = self.left()
            self.serve(signal.SIGTERM)
            self.found["left by the server"] = self.left()
            self.serve(signal.SIGKILL)
            self.found["left by a killed server"] = self.left()
            self.shut_down()
            self.found["left by ray.shutdown()"] = self.left()
        finally:
            ray.shutdown()
            self.ray.shutdown()

    def left(self) -> list[int]:
        """Wait until all actors have ended, and return the processes that are left: none."""
        for title in ("ray::FrontActor", "ray::AgentActor", "ray::ControllerActor"):
            eventually(lambda title=title: not processes_of(title), f"{title} ends")
        return [process.pid for process in processes_of("sojourn")]

    def use(self, everywhere: Any) -> None:
        found = self.found
        found["nodes"] = len(everywhere.status()["nodes"])
        self.add_node("127.0.0.4")
        eventually(lambda: len(everywhere.status()["nodes"]) == 3, "the third node joins")
        everywhere.register("times", self.model, copies=2, pinned=True)
        eventually(lambda: self.copies(everywhere) == 2, "two copies are open")
        found["squares"] = square.map(range(4), on=everywhere, quiet=True)
        found["receipt node"] = square.receipt.node if square.receipt else ""
        self.kill_agent(everywhere)
        self.kill_controller(everywhere)
        self.lose_head(everywhere)
        self.kill_node(everywhere)
        found["counts"] = everywhere.counts

    def kill_agent(self, everywhere: Any) -> None:
        with everywhere.lease("times", timeout=SECONDS) as session:
            session.run(*FOURS)
            worker, begun = session.pid, time.monotonic()
            address = "{}:{}".format(*session.link.facts.address)
            below(self.node_of(session), "ray::AgentActor").kill()
            eventually(lambda: is_gone(worker), "the worker ends with its agent")
            self.found["seconds until the worker was gone"] = time.monotonic() - begun
            session.run(*FOURS, timeout=SECONDS)
        eventually(lambda: self.has_left(everywhere, address), "the agent is known to be gone")
        eventually(lambda: len(everywhere.status()["nodes"]) == 3, "the agent is back")
        eventually(lambda: self.copies(everywhere) == 2, "its copy is back")

    def kill_controller(self, everywhere: Any) -> None:
        epoch = everywhere.status()["epoch"]
        with everywhere.lease("times", timeout=SECONDS) as session:
            worker = session.pid
            [controller] = processes_of("ray::ControllerActor")
            controller.kill()
            session.run(*FOURS, timeout=SECONDS)
            eventually(lambda: everywhere.status()["epoch"] > epoch, "a later controller")
            session.run(*FOURS, timeout=SECONDS)
            self.found["worker stayed"] = session.pid == worker
        self.found["copies after the controller"] = self.copies(everywhere)

    def lose_head(self, everywhere: Any) -> None:
        """Stop Ray's own store of the cluster's state for a while. Steps do not need it."""
        everywhere.register("counter", counter)
        with everywhere.lease("counter", timeout=SECONDS) as session:
            session.run("output", {"amount": 1.0}, timeout=SECONDS)
            worker = session.pid
            self.ray.head_node.kill_gcs_server()
            until, away = time.monotonic() + 3.0, 0
            while time.monotonic() < until:
                session.run("output", {"amount": 1.0}, timeout=5.0)
                away += 1
            self.ray.head_node.start_gcs_server()
            self.found["steps without Ray's head"] = away
            begun = time.monotonic()
            eventually(lambda: answers(everywhere.status), "the controller is reached again")
            self.found["seconds until Ray's head was back"] = time.monotonic() - begun
            total = session.run("output", {"amount": 0.0}, timeout=SECONDS)
            self.found["every step counted once"] = bool(total == 1.0 + away)
            self.found["worker outlived Ray's head"] = session.pid == worker
        everywhere.unregister("counter")
        eventually(lambda: self.copies(everywhere) == 2, "all is as before")

    def serve(self, ending: signal.Signals) -> None:
        """Run the command, with a front on each node; end it as a user does, or kill it."""
        folder = os.path.join(os.environ["RAY_TMPDIR"], "models")
        ready = os.path.join(os.environ["RAY_TMPDIR"], "ready.json")
        if not os.path.exists(folder):
            served_models.write_version(pathlib.Path(folder) / "times", 2)
        command = [sys.executable, "-m", "sojourn", "serve", "--cluster", self.ray.address]
        command += [folder, "--http", "127.0.0.1:0", "--grpc", "", "--ready-file", ready]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                eventually(lambda: os.path.exists(ready) or process.poll() is not None, "it serves")
                with open(ready) as file:
                    fronts = json.load(file)["fronts"]
                urls = [addresses["http"] for addresses in fronts.values()]
                self.found["fronts"] = len(urls)
                self.found["answers"] = [infer(url) for url in urls]
                process.send_signal(ending)
                self.found[f"serve ended by {ending.name} with"] = process.wait(SECONDS)
            finally:
                process.kill()
                pathlib.Path(ready).unlink(missing_ok=True)
                assert process.stderr is not None
                self.found["serve said"] = process.stderr.read()[-2000:]

    def shut_down(self) -> None:
        """Shut Ray down while a connection is still open."""
        everywhere = cluster.connect()
        everywhere.register("times", self.model, pinned=True)
        eventually(lambda: self.copies(everywhere) == 1, "it is open")
        ray.shutdown()
        try:
            everywhere.lease("times", timeout=5)
        except sojourn.SojournError as error:
            self.found["after ray.shutdown()"] = str(error)
        everywhere.close()
        self.found["Ray was started by nobody"] = not ray.is_initialized()

    def kill_node(self, everywhere: Any) -> None:
        """Remove a node while callers on several threads use it."""
        stop, slowest, errors, steps = threading.Event(), [0.0], [], [0]

        def call() -> None:
            while not stop.is_set():
                begun = time.monotonic()
                try:
                    with everywhere.lease("times", timeout=SECONDS) as session:
                        session.run(*FOURS, timeout=SECONDS)
                except Exception as error:
                    errors.append(repr(error))
                steps[0] += 1
                slowest[0] = max(slowest[0], time.monotonic() - begun)

        with everywhere.lease("times", timeout=SECONDS) as session:
            lost = self.node_of(session)
            if lost is self.ray.head_node:  # it must stay: take the other copy's node
                with everywhere.lease("times", timeout=SECONDS) as other:
                    lost = self.node_of(other)
        callers = [threading.Thread(target=call) for _ in range(4)]
        for caller in callers:
            caller.start()
        eventually(lambda: steps[0] > 40, "steps")
        begun = time.monotonic()
        self.ray.remove_node(lost, allow_graceful=False)
        eventually(
            lambda: len(everywhere.status()["nodes"]) == 2 and self.copies(everywhere) == 2,
            "back to plan",
        )
        self.found["seconds until back to plan"] = time.monotonic() - begun
        after = steps[0]
        eventually(lambda: steps[0] > after + 40, "more steps")
        stop.set()
        for caller in callers:
            caller.join()
        self.found["errors"] = errors
        self.found["slowest answer"] = slowest[0]


def main() -> None:
    os.makedirs(os.path.join(os.environ["RAY_TMPDIR"], "ray"))  # Ray expects this folder to exist
    program = Program()
    try:
        program.run()
    except BaseException as error:
        program.found["failed"] = repr(error)
        raise
    finally:
        print(json.dumps(program.found), flush=True)


if __name__ == "__main__":
    main()
