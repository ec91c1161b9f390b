"""The cost of a session, in time to its first result and memory, against a fresh process."""

from __future__ import annotations

import contextlib
import functools
import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

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


class _Switching:
    """A pool with two models and room for one of them."""

    def __init__(self, spares: int) -> None:
        self._pool = sojourn.Pool(max_sessions=1, spares=spares)
        self._spares = spares
        self._names = itertools.cycle(("one", "other"))
        self.open_times: list[float] = []
        self.switch_times: list[float] = []

    def __enter__(self) -> _Switching:
        for _ in range(2):
            self._pool.register(next(self._names), model.build)
        self._pool.preload(next(self._names))
        return self

    def __exit__(self, *raised: object) -> None:
        self._pool.close()

    def switch(self, x: np.ndarray) -> None:
        """Lease the model that is not open, so that the other one has to be closed."""
        self.switch_times.append(self._timed(next(self._names), x))

    def open(self, x: np.ndarray) -> None:
        """Lease a model while there is room for it."""
        name = next(self._names)
        for other in ("one", "other"):
            self._pool.evict(other)
        self.open_times.append(self._timed(name, x))

    def _timed(self, name: str, x: np.ndarray) -> float:
        started = time.perf_counter()
        with self._pool.lease(name) as session:
            session.run("y", {"x": x})
            return time.perf_counter() - started

    def wait_for_spares(self) -> None:
        """Wait until the pool has all its spare workers ready."""
        while [spare.state for spare in self._pool.stats().spares] != ["ready"] * self._spares:
            time.sleep(0.01)


class _DropIn:
    """A graph built in this program, run in one drop-in session after the other."""

    def __init__(self) -> None:
        import tensorflow as tf

        v1 = tf.compat.v1
        self._graph: Any = v1.Graph()
        with self._graph.as_default():
            inputs, outputs = model.build()
            self._init = v1.global_variables_initializer()
        self._x, self._y = inputs["x"], outputs["y"]
        self.times: list[float] = []

    def open(self, x: np.ndarray) -> None:
        """Open a session, initialise the graph in it and run it."""
        from sojourn.compat import v1

        started = time.perf_counter()
        with v1.Session(graph=self._graph) as session:
            session.run(self._init)
            session.run(self._y, {self._x: x})
            self.times.append(time.perf_counter() - started)


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
    drop_in = _DropIn()
    isolated()
    drop_in.open(x)
    for times in (isolated_times, isolated_held, close_times, drop_in.times):
        times.clear()
    with contextlib.ExitStack() as pools:
        cold, spared = (pools.enter_context(_Switching(spares)) for spares in (0, 1))
        for _ in range(1 if quick else 4):
            for _ in range(8):
                for contestant in (
                    isolated,
                    functools.partial(drop_in.open, x),
                    functools.partial(cold.switch, x),
                    functools.partial(spared.switch, x),
                    functools.partial(spared.open, x),
                ):
                    spared.wait_for_spares()  # making a spare worker would use a core meanwhile
                    contestant()
            spared.wait_for_spares()
            process()
    for work, times, bar in (
        ("open to first result, drop-in graph", drop_in.times, 0.012),
        ("open to first result, builder", isolated_times, 0.02),
        ("open to first result, from a pool with a spare", spared.open_times, 0.008),
    ):
        fresh = p50(process_times)
        yield Row(work, p50(times), "fresh process", fresh, bar, samples=tuple(times))
    for work, times, limit in (
        ("switch of two tiny models in a full pool", cold.switch_times, None),
        ("the same with a spare", spared.switch_times, 0.025),
    ):
        yield Row(work, p50(times), bar=limit, samples=tuple(times))
    yield Row("close of a small session", p50(close_times))
    yield Row(
        "private memory of a small session",
        p50(isolated_held),
        "fresh process",
        p50(process_held),
        0.20,
        unit="bytes",
    )
