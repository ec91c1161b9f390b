"""The cost of waiting: awaited steps against blocking ones, and results too large to copy."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import sojourn
from sojourn.bench import model
from sojourn.bench.harness import Row, in_turns, p50

_TASKS, _THREADS = 128, 8
_LARGE = 2**24  # floats: 64 MiB


def rows(progress: Callable[[str], None], *, quick: bool = False) -> Iterator[Row]:
    """Compare awaited with blocking steps, and isolated with inline results, in turns."""
    with sojourn.open(model.build) as session:
        progress("awaited steps, one at a time and many at once")
        yield _one_at_a_time(session, 10 if quick else 60)
        yield _many_at_once(session, 3 if quick else 10)
    progress("results of 64 MiB")
    yield _large_results(4 if quick else 15)


def _one_at_a_time(session: sojourn.Session, rounds: int) -> Row:
    x = model.batch(1)
    times: dict[str, list[float]] = {"run": [], "arun": []}

    async def compare() -> None:
        clock = time.perf_counter
        for round_ in range(rounds + 3):
            for _ in range(20):
                started = clock()
                session.run("y", {"x": x})
                between = clock()
                if round_ >= 3:
                    times["run"].append(between - started)
            for _ in range(20):
                started = clock()
                await session.arun("y", {"x": x})
                if round_ >= 3:
                    times["arun"].append(clock() - started)

    asyncio.run(compare())
    middle = {name: p50(samples) for name, samples in times.items()}
    samples = tuple(times["arun"])
    return Row("awaited call, batch 1", middle["arun"], "run", middle["run"], 1.5, samples=samples)


def _many_at_once(session: sojourn.Session, rounds: int) -> Row:
    x = model.batch(1)
    each = 4000 // _TASKS

    async def one() -> None:
        for _ in range(each):
            await session.arun("y", {"x": x})

    async def tasks() -> None:
        await asyncio.gather(*[one() for _ in range(_TASKS)])

    def awaited() -> None:
        asyncio.run(tasks())

    def threaded() -> None:
        def run() -> None:
            for _ in range(each * _TASKS // _THREADS):
                session.run("y", {"x": x})

        threads = [threading.Thread(target=run) for _ in range(_THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    times = in_turns({"awaited": awaited, "threaded": threaded}, rounds=rounds, warm_up=1)
    steps = each * _TASKS
    per_step = {name: p50(samples) / steps for name, samples in times.items()}
    return Row(
        f"a step of {_TASKS} tasks",
        per_step["awaited"],
        f"{_THREADS} threads",
        per_step["threaded"],
        1 / 1.5,
    )


def _large_results(rounds: int) -> Row:
    x = np.ones((), np.float32)
    with contextlib.ExitStack() as stack:
        calls: dict[str, Any] = {}
        for isolation in ("process", "inline"):
            session = stack.enter_context(sojourn.open(_wide, isolation=isolation))
            calls[isolation] = lambda session=session: session.run("y", {"x": x})
        times = in_turns(calls, rounds=rounds, calls=3, warm_up=14)
    middle = {name: p50(samples) for name, samples in times.items()}
    samples = tuple(times["process"])
    return Row(
        "isolated result of 64 MiB", middle["process"], "inline", middle["inline"], 1.1,
        samples=samples,
    )  # fmt: skip


def _wide() -> Any:
    import tensorflow as tf

    x = tf.compat.v1.placeholder(tf.float32, [], name="x")
    return {"x": x}, {"y": tf.fill([_LARGE], 1.0) + x}
