"""The price of a session: open to first result, and the memory it takes, against a process."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import sojourn
from sojourn.bench import model
from sojourn.bench.harness import Row, p50
from sojourn.probes import memory

_FRESH = """
from sojourn.bench import model
from sojourn.probes import memory
import tensorflow as tf
v1 = tf.compat.v1
with v1.Graph().as_default(), v1.Session() as session:
    inputs, outputs = model.build()
    session.run(v1.global_variables_initializer())
    session.run(outputs["y"], {inputs["x"]: model.batch(1)})
    print("first result", flush=True)
    print(memory.of_process().private_bytes)
"""


def rows(progress: Callable[[str], None], *, quick: bool = False) -> Iterator[Row]:
    """Compare opening with a fresh process that imports TensorFlow and does the same."""
    sojourn.warm_up(wait=True)
    x = model.batch(1)
    isolated_times: list[float] = []
    isolated_held: list[float] = []
    close_times: list[float] = []
    process_times: list[float] = []
    process_held: list[float] = []

    def isolated() -> None:
        started = time.perf_counter()
        session = sojourn.open(model.build)
        try:
            session.run("y", {"x": x})
            isolated_times.append(time.perf_counter() - started)
            reading = memory.of_process(session.pid)
            isolated_held.append(reading.private_bytes if reading else 0)
        finally:
            close_times.append(session.close().seconds)

    def process() -> None:
        started = time.perf_counter()
        with subprocess.Popen(
            [sys.executable, "-c", _FRESH], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as fresh:
            assert fresh.stdout is not None
            fresh.stdout.readline()
            process_times.append(time.perf_counter() - started)
            process_held.append(float(fresh.stdout.readline()))

    progress("open to first result: isolated against a process per task")
    isolated()
    isolated_times.clear()
    for _ in range(1 if quick else 4):
        for _ in range(8):
            isolated()
        process()
    yield Row(
        "open to first result",
        p50(isolated_times),
        "fresh process",
        p50(process_times),
        0.02,
        samples=tuple(isolated_times),
    )
    yield Row("close of a small session", p50(close_times))
    yield Row(
        "private memory of a small session",
        p50(isolated_held),
        "fresh process",
        p50(process_held),
        0.20,
        unit="bytes",
    )
