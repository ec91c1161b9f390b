"""The price of a session: open to first result, and the memory it takes, against a process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import sojourn
from sojourn.bench import model
from sojourn.bench.harness import Row, in_turns, p50
from sojourn.probes import memory

_FRESH = """
import json, os, sys
from sojourn.bench import model
from sojourn.probes import memory
import tensorflow as tf
v1 = tf.compat.v1
with v1.Graph().as_default(), v1.Session() as session:
    inputs, outputs = model.build()
    session.run(v1.global_variables_initializer())
    session.run(outputs["y"], {inputs["x"]: model.batch(1)})
    print(json.dumps(memory.of_process().private_bytes))
"""


def rows(progress: Callable[[str], None], *, quick: bool = False) -> Iterator[Row]:
    """Compare opening with a fresh process that imports TensorFlow and does the same."""
    sojourn.warm_up(wait=True)
    x = model.batch(1)
    held: dict[str, list[float]] = {"isolated": [], "process": []}

    def isolated() -> None:
        with sojourn.open(model.build) as session:
            session.run("y", {"x": x})
            reading = memory.of_process(session.pid)
            held["isolated"].append(reading.private_bytes if reading else 0)

    def process() -> None:
        done = subprocess.run(
            [sys.executable, "-c", _FRESH], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        held["process"].append(json.loads(done.stdout))

    progress("open, first result, close: isolated against a process per task")
    isolated()
    isolated_times = []
    process_times = []
    for _ in range(1 if quick else 3):
        times = in_turns({"isolated": isolated}, rounds=8)
        isolated_times += times["isolated"]
        process_times += in_turns({"process": process}, rounds=1)["process"]
    yield Row(
        "open, first result, close",
        p50(isolated_times),
        "fresh process",
        p50(process_times),
        0.02,
        samples=tuple(isolated_times),
    )
    yield Row(
        "private memory of a small session",
        p50(held["isolated"]),
        "fresh process",
        p50(held["process"]),
        0.20,
        unit="bytes",
    )
