"""What an isolated call costs, and what it leaves in the caller.

Two measurements:

- a call that does nothing, in a worker forked from a warm zygote, against the usual remedy: a
  `multiprocessing` process, started by "spawn", that imports TensorFlow and does nothing. Measured
  in turns; prints the ratio of the medians. The bar is 0.02.
- how much the caller's own memory (PSS) grows over twenty Keras trainings, one isolated call each.
  The bar is 5 MB.

    python benchmarks/isolated_call.py [--rounds 5] [--calls 10] [--trainings 20] [--json]
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import statistics
import sys
import time

import sojourn
from sojourn.probes import memory

RATIO_BAR = 0.02
GROWTH_BAR = 5_000_000


def nothing() -> None:
    """The work of the isolated call."""


def import_tensorflow() -> None:
    """The work of the spawned process: what a function that uses TensorFlow needs."""
    import tensorflow  # noqa: F401


def train() -> float:
    """A small Keras training."""
    import numpy as np
    import tensorflow as tf

    model = tf.keras.Sequential(
        [
            tf.keras.Input((64,)),
            tf.keras.layers.Dense(256, activation="relu"),
            tf.keras.layers.Dense(1),
        ]
    )
    model.compile("adam", "mse")
    x = np.random.rand(512, 64).astype(np.float32)
    return float(model.fit(x, x.sum(axis=1), epochs=2, verbose=0).history["loss"][-1])


def seconds_of_isolated(calls: int) -> list[float]:
    call = sojourn.isolated(nothing)
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return times


def seconds_of_spawned() -> float:
    began = time.perf_counter()
    process = multiprocessing.get_context("spawn").Process(target=import_tensorflow)
    process.start()
    process.join()
    if process.exitcode != 0:
        raise SystemExit("the spawned process failed; is TensorFlow installed?")
    return time.perf_counter() - began


def growth_of_caller(trainings: int) -> int:
    """Return the growth of PSS in bytes over the trainings, after an uncounted first one."""
    call = sojourn.isolated(train)
    call()
    before = _pss()
    for _ in range(trainings):
        call()
    return _pss() - before


def _pss() -> int:
    gc.collect()
    reading = memory.of_process()
    assert reading is not None
    return reading.pss_bytes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=10, help="isolated calls in each round")
    parser.add_argument("--trainings", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    sojourn.warm_up(wait=True)
    seconds_of_isolated(2)
    isolated: list[float] = []
    spawned: list[float] = []
    for _ in range(options.rounds):
        isolated += seconds_of_isolated(options.calls)
        spawned.append(seconds_of_spawned())
    growth = growth_of_caller(options.trainings)
    ratio = statistics.median(isolated) / statistics.median(spawned)
    results = {
        "isolated_seconds": statistics.median(isolated),
        "spawned_seconds": statistics.median(spawned),
        "ratio": ratio,
        "ratio_bar": RATIO_BAR,
        "trainings": options.trainings,
        "growth_bytes": growth,
        "growth_bar": GROWTH_BAR,
        "passed": ratio <= RATIO_BAR and growth <= GROWTH_BAR,
    }
    if options.json:
        print(json.dumps(results))
    else:
        print(f"isolated call, warm zygote   {results['isolated_seconds'] * 1e3:9.1f} ms")
        print(f"spawn and import TensorFlow  {results['spawned_seconds'] * 1e3:9.1f} ms")
        print(f"ratio                        {ratio:9.4f}    (bar {RATIO_BAR})")
        print(
            f"growth of the caller over {options.trainings} trainings "
            f"{growth / 1e6:.2f} MB    (bar {GROWTH_BAR / 1e6:.0f} MB)"
        )
    return 0 if results["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
