"""What a cluster costs, against Ray's own ways, on two Ray nodes of this machine.

Each number is a ratio of medians from the same run, taken in turns. Bars:

- calls: a step of a leased session on another node, batch 1 and 64, against a call of a Ray actor
  there that has the same model in a raw TensorFlow session: 0.5.
- large: 12.8 MB there and back, against the better of Ray references and gRPC: 1.1.
- flight: steps/s with 32 in flight, against Ray Serve by handle: 8 times (if Ray Serve is there).
- sweep: 20 tiny trainings, seconds per call, against Ray tasks with `max_calls=1`: 0.12.

    python benchmarks/cluster.py [--part calls] [--rounds 20] [--network] [--json]

Nodes of one machine share memory. With `--network` our nodes are reached by TCP, as between
machines; what Ray does on one machine stays as it is. Ray gets a home, a temporary folder and
addresses of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

import sojourn

ROWS = 4096  # 12.8 MB
FLIGHT = 32


def dense() -> Any:
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 784], name="x")
    w = v1.get_variable("w", [784, 10], initializer=v1.ones_initializer())
    b = v1.get_variable("b", [10], initializer=v1.zeros_initializer())
    return {"x": x}, {"y": tf.nn.softmax(tf.matmul(x, w) + b)}


def echo() -> Any:
    import tensorflow as tf

    x = tf.compat.v1.placeholder(tf.float32, [None, 784], name="x")
    return {"x": x}, {"y": tf.identity(x)}


def train(rate: float) -> float:
    import tensorflow as tf

    w = tf.Variable(tf.zeros([784, 10]))
    x = tf.ones([32, 784])
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - 1.0))
        w.assign_sub(rate * tape.gradient(loss, w))
    return float(loss)


class Raw:
    """The same model in a raw session, inside a Ray actor; it also echoes bytes."""

    def __init__(self) -> None:
        import tensorflow as tf

        v1 = tf.compat.v1
        v1.disable_eager_execution()
        inputs, outputs = dense()
        self._x, self._y = inputs["x"], outputs["y"]
        self._session = v1.Session()  # noqa: SOJ001 - it ends with its actor
        self._session.run(v1.global_variables_initializer())

    def run(self, x: np.ndarray) -> np.ndarray:
        result: np.ndarray = self._session.run(self._y, {self._x: x})
        return result

    def echo(self, x: np.ndarray) -> np.ndarray:
        return x

    def serve_grpc(self, host: str) -> int:
        from concurrent.futures import ThreadPoolExecutor

        import grpc

        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self._grpc = grpc.server(ThreadPoolExecutor(2), options=options)
        same = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
        handler = grpc.method_handlers_generic_handler("bench", {"echo": same})
        self._grpc.add_generic_rpc_handlers((handler,))
        port: int = self._grpc.add_insecure_port(f"{host}:0")
        self._grpc.start()
        return port


def in_turns(rounds: int, each: int, *works: Callable[[], Any]) -> list[float]:
    """Return the median seconds of each work, all measured in turns."""
    for work in works:
        for _ in range(each):
            work()
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, seconds in zip(works, times, strict=True):
            for _ in range(each):
                begun = time.perf_counter()
                work()
                seconds.append(time.perf_counter() - begun)
    return [statistics.median(seconds) for seconds in times]


class Bench:
    def __init__(self, everywhere: Any, rounds: int) -> None:
        self.everywhere, self.rounds = everywhere, rounds
        self.found: dict[str, Any] = {"load": os.getloadavg()[0]}

    def actor_beside(self, session: Any) -> Any:
        import ray

        node = session.link.facts.node_id
        remote = ray.remote(Raw).options(num_cpus=0, label_selector={"ray.io/node-id": node})
        return remote.remote()

    def calls(self) -> None:
        import ray

        self.everywhere.register("dense", dense)
        with self.everywhere.lease("dense", timeout=300) as session:
            raw = self.actor_beside(session)
            for batch in (1, 64):
                x = np.ones((batch, 784), np.float32)
                ours, theirs = in_turns(
                    self.rounds,
                    20,
                    lambda x=x: session.run("y", {"x": x}),
                    lambda x=x: ray.get(raw.run.remote(x)),
                )
                self.found[f"call, batch {batch}"] = self.ratio(ours, theirs, 0.5)
            ray.kill(raw)

    def large(self) -> None:
        import grpc
        import ray

        self.everywhere.register("echo", echo)
        x = np.ones((ROWS, 784), np.float32)
        with self.everywhere.lease("echo", timeout=300) as session:
            raw = self.actor_beside(session)
            host = session.link.facts.address[0]
            port = ray.get(raw.serve_grpc.remote(host))
            options = [
                ("grpc.max_receive_message_length", -1),
                ("grpc.max_send_message_length", -1),
            ]
            with grpc.insecure_channel(f"{host}:{port}", options=options) as channel:
                call = channel.unary_unary("/bench/echo")
                ours, by_ray, by_grpc = in_turns(
                    self.rounds,
                    2,
                    lambda: session.run("y", {"x": x}),
                    lambda: ray.get(raw.echo.remote(x)),
                    lambda: np.frombuffer(call(x.tobytes()), np.float32),
                )
            self.found["12.8 MB"] = self.ratio(ours, min(by_ray, by_grpc), 1.1)
            self.found["12.8 MB"]["ms, Ray and gRPC"] = [by_ray * 1e3, by_grpc * 1e3]
            ray.kill(raw)

    def flight(self) -> None:
        """Steps/s: many requests in flight, from one event loop."""
        self.everywhere.register("flight", dense)
        x = np.ones((1, 784), np.float32)

        async def ours(session: Any) -> float:
            async def some(count: int) -> None:
                for _ in range(count):
                    await session.arun("y", {"x": x})

            await some(20)
            begun = time.perf_counter()
            await asyncio.gather(*(some(30) for _ in range(FLIGHT)))
            return FLIGHT * 30 / (time.perf_counter() - begun)

        with self.everywhere.lease("flight", timeout=300) as session, _by_serve(x) as theirs:
            rounds = [(asyncio.run(ours(session)), theirs()) for _ in range(5)]
        mine, others = (statistics.median(rates) for rates in zip(*rounds, strict=True))
        self.found["32 in flight, steps/s"] = {
            "ratio": mine / others,
            "bar": 8,
            "steps/s": [mine, others],
        }

    def sweep(self) -> None:
        import ray

        rates = [0.01 * i for i in range(1, 21)]
        function = sojourn.isolated(train)
        function.map(rates[:2], on=self.everywhere, quiet=True)
        begun = time.perf_counter()
        function.map(rates, on=self.everywhere, quiet=True)
        ours = (time.perf_counter() - begun) / len(rates)
        task = ray.remote(max_calls=1)(train)
        begun = time.perf_counter()
        ray.get([task.remote(rate) for rate in rates])
        theirs = (time.perf_counter() - begun) / len(rates)
        self.found["sweep, a call"] = self.ratio(ours, theirs, 0.12)

    @staticmethod
    def ratio(ours: float, theirs: float, bar: float) -> dict[str, Any]:
        milliseconds = [ours * 1e3, theirs * 1e3]
        return {"ratio": ours / theirs, "bar": bar, "ms": milliseconds}


@contextmanager
def _by_serve(x: np.ndarray) -> Iterator[Callable[[], float]]:
    """Give a function that measures steps/s of the same model by a handle of Ray Serve; it returns
    NaN if Ray Serve is not installed."""
    try:
        from ray import serve
    except ImportError:
        yield lambda: math.nan
        return

    class Served(Raw):
        def __call__(self, x: np.ndarray) -> np.ndarray:
            return self.run(x)

    deployment = serve.deployment(Served, max_ongoing_requests=FLIGHT)  # type: ignore[call-overload]
    handle = serve.run(deployment.bind())
    for _ in range(20):
        handle.remote(x).result()

    def rate() -> float:
        begun = time.perf_counter()
        for _ in range(10):
            for answer in [handle.remote(x) for _ in range(FLIGHT)]:
                answer.result()
        return 10 * FLIGHT / (time.perf_counter() - begun)

    yield rate
    serve.shutdown()


PARTS = ("calls", "large", "flight", "sweep")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--network", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()

    folder = tempfile.mkdtemp(prefix="b", dir="/tmp")
    os.environ.update(HOME=folder, RAY_TMPDIR=folder, RAY_USAGE_STATS_ENABLED="0")
    here = os.path.dirname(os.path.abspath(__file__))
    os.environ["PYTHONPATH"] = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    os.makedirs(f"{folder}/ray")
    import ray
    from ray.cluster_utils import Cluster

    options = {"num_cpus": 2, "object_store_memory": 200 * 2**20, "memory": 4 * 2**30}
    head = {**options, "node_ip_address": "127.0.0.2", "include_dashboard": False}
    nodes = Cluster(initialize_head=True, head_node_args=head)
    nodes.add_node(node_ip_address="127.0.0.3", **options)
    try:
        ray.init(address=nodes.address, _node_ip_address="127.0.0.2", log_to_driver=False)
        with sojourn.cluster.connect() as everywhere:
            if given.network:
                for link in everywhere._links.values():
                    link.facts = replace(link.facts, local="")
            bench = Bench(everywhere, given.rounds)
            for part in [given.part] if given.part else PARTS:
                getattr(bench, part)()
    finally:
        ray.shutdown()
        nodes.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
    if given.json:
        json.dump(bench.found, sys.stdout)
    else:
        for name, value in bench.found.items():
            print(f"{name:24} {value}")


if __name__ == "__main__":
    main()
