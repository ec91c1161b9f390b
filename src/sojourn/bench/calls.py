"""The cost of a call: raw `Session.run`, TensorFlow's own remote session, loky, and sojourn."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import multiprocessing
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import sojourn
from sojourn.bench import model, namespace
from sojourn.bench.harness import Row, in_turns, p50

SIZES = (1, 64, 512, 4096)
_PLACED_FROM = 512  # rows; smaller batches are copied even if they are placed
_ROUNDS = {1: 60, 64: 60, 512: 40, 4096: 25}
_CALLS = 20
_BARS_RAW = {1: 0.15, 64: 0.40, 512: 0.85, 4096: 1.00}
_BARS_PLACED = {512: 0.75, 4096: 0.85}
_BARS_GRPC = {1: 0.12, 4096: 0.20}


def rows(progress: Callable[[str], None], *, quick: bool = False) -> Iterator[Row]:
    """Compare calls of each batch size."""
    with contextlib.ExitStack() as stack:
        contestants = {
            "raw": stack.enter_context(_raw()),
            "isolated": stack.enter_context(_sojourn("process")),
            "inline": stack.enter_context(_sojourn("inline")),
        }
        if namespace.is_private():
            contestants["grpc"] = stack.enter_context(_grpc())
        if importlib.util.find_spec("loky"):
            contestants["loky"] = stack.enter_context(_loky())
        for size in SIZES:
            progress(f"calls of batch {size}: {', '.join(contestants)}")
            x = model.batch(size)
            calls = {name: functools.partial(call, x) for name, call in contestants.items()}
            if size >= _PLACED_FROM:
                placed = sojourn.empty_like(x)
                placed[...] = x
                calls["placed"] = functools.partial(contestants["isolated"], placed)
            rounds = max(3, _ROUNDS[size] // (6 if quick else 1))
            times = in_turns(calls, rounds=rounds, calls=_CALLS, warm_up=30)
            yield from _rows_of(size, times)


def _rows_of(size: int, times: dict[str, list[float]]) -> Iterator[Row]:
    middle = {name: p50(samples) for name, samples in times.items()}

    def row(name: str, against: str, bar: float | None) -> Row:
        work = f"{name} call, batch {size}"
        return Row(work, middle[name], against, middle[against], bar, samples=tuple(times[name]))

    yield row("isolated", "raw", _BARS_RAW[size])
    yield row("inline", "raw", 0.10 if size == 1 else None)
    if "placed" in times:
        yield row("placed", "raw", _BARS_PLACED[size])
    if size == max(SIZES):
        yield row("placed", "inline", 1.05)
    if "grpc" in times:
        yield row("isolated", "grpc", _BARS_GRPC.get(size))
    if "loky" in times:
        yield row("isolated", "loky", None)


@contextlib.contextmanager
def _raw() -> Iterator[Callable[[np.ndarray], Any]]:
    import tensorflow as tf

    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        inputs, outputs = model.build()
        session.run(v1.global_variables_initializer())
        x, y = inputs["x"], outputs["y"]
        yield lambda value: session.run(y, {x: value})


@contextlib.contextmanager
def _sojourn(isolation: str) -> Iterator[Callable[[np.ndarray], Any]]:
    with sojourn.open(model.build, isolation=isolation) as session:
        yield lambda value: session.run("y", {"x": value})


@contextlib.contextmanager
def _grpc() -> Iterator[Callable[[np.ndarray], Any]]:
    """TensorFlow's own remote session. Only in a private network namespace: its server listens on
    every interface and reads and writes files for anyone who connects."""
    import tensorflow as tf

    v1 = tf.compat.v1
    context = multiprocessing.get_context("spawn")
    ready, answer = context.Pipe(duplex=False)
    server = context.Process(target=_serve_grpc, args=(answer,), daemon=True)
    server.start()
    try:
        target = ready.recv()
        with v1.Graph().as_default(), v1.Session(target) as session:
            inputs, outputs = model.build()
            session.run(v1.global_variables_initializer())
            x, y = inputs["x"], outputs["y"]
            yield lambda value: session.run(y, {x: value})
    finally:
        server.kill()
        server.join()


def _serve_grpc(answer: Any) -> None:
    import time

    import tensorflow as tf

    server = tf.distribute.Server.create_local_server()
    answer.send(server.target)
    time.sleep(3600)


@contextlib.contextmanager
def _loky() -> Iterator[Callable[[np.ndarray], Any]]:
    """The popular way to keep a session in another process: arrays travel as pickles."""
    import loky

    executor = loky.ProcessPoolExecutor(max_workers=1)
    try:
        executor.submit(_hold_session).result()
        yield lambda value: executor.submit(_run_held, value).result()
    finally:
        executor.shutdown(kill_workers=True)


_held: dict[str, Any] = {}


def _hold_session() -> int:
    import tensorflow as tf

    v1 = tf.compat.v1
    graph = v1.Graph()
    with graph.as_default():
        inputs, outputs = model.build()
        _held["session"] = v1.Session(graph=graph)
        _held["session"].run(v1.global_variables_initializer())
        _held["x"], _held["y"] = inputs["x"], outputs["y"]
    return os.getpid()


def _run_held(value: np.ndarray) -> Any:
    return _held["session"].run(_held["y"], {_held["x"]: value})
