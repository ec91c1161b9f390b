"""What a step of the drop-in session costs, as a ratio to TensorFlow's own session.

Each kind of step runs on all sessions, in small batches that take turns, so that other load on the
machine affects all alike. The figure is the median of the batches' ratios to raw; next to it is the
ratio of the fastest tenths, which is what a step costs when nothing else runs.

    python benchmarks/training_step.py [--rounds 40] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from sojourn.compat.v1 import Session

v1 = tf.compat.v1
BATCH = 64
STEPS_A_BATCH = 25
WARM_UP = 60
# The most that `[train_op, loss]` may cost, as a ratio to raw.
BARS = {"process": 0.6, "inline": 0.3}


def model() -> tuple[Any, dict[str, Any], dict[Any, np.ndarray], Any]:
    """Return a small classifier: its graph, the steps to time, the feeds, and its initialiser."""
    graph = tf.Graph()
    with graph.as_default():
        v1.set_random_seed(7)
        x = v1.placeholder(tf.float32, [None, 784], name="x")
        labels = v1.placeholder(tf.int64, [None], name="labels")
        weights = v1.get_variable("weights", [784, 10])
        bias = v1.get_variable("bias", [10], initializer=tf.zeros_initializer())
        logits = tf.matmul(x, weights) + bias
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        )
        train = v1.train.GradientDescentOptimizer(0.01).minimize(loss)
        guess = tf.argmax(logits, 1)
        accuracy = tf.reduce_mean(tf.cast(tf.equal(guess, labels), tf.float32))
        steps = {
            "one fetch": loss,
            "dict of five": {
                "loss": loss,
                "logits": logits,
                "guess": guess,
                "accuracy": accuracy,
                "bias": bias,
            },
            "[train_op, loss]": [train, loss],
        }
        initializer = v1.global_variables_initializer()
    generator = np.random.default_rng(7)
    feeds = {
        x: generator.random((BATCH, 784), dtype=np.float32),
        labels: generator.integers(0, 10, BATCH),
    }
    return graph, steps, feeds, initializer


def seconds_a_step(run: Callable[[], Any]) -> float:
    started = time.perf_counter()
    for _ in range(STEPS_A_BATCH):
        run()
    return (time.perf_counter() - started) / STEPS_A_BATCH


def quick(taken: list[float]) -> float:
    return sorted(taken)[len(taken) // 10]


def measure(rounds: int) -> dict[str, dict[str, Any]]:
    graph, steps, feeds, initializer = model()
    sessions = {
        "raw": v1.Session(graph=graph),
        "inline": Session(graph=graph, isolation="inline"),
        "process": Session(graph=graph),
    }
    report: dict[str, dict[str, Any]] = {}
    try:
        for session in sessions.values():
            session.run(initializer)
        for name, fetches in steps.items():
            runs = {
                which: lambda session=session, fetches=fetches: session.run(fetches, feeds)
                for which, session in sessions.items()
            }
            for run in runs.values():
                for _ in range(WARM_UP):
                    run()
            times: dict[str, list[float]] = {which: [] for which in runs}
            for _ in range(rounds):
                for which, run in runs.items():
                    times[which].append(seconds_a_step(run))
            report[name] = {
                which: {
                    "microseconds": statistics.median(taken) * 1e6,
                    "ratio": statistics.median(
                        [t / raw for t, raw in zip(taken, times["raw"], strict=True)]
                    ),
                    "undisturbed": quick(taken) / quick(times["raw"]),
                }
                for which, taken in times.items()
            }
    finally:
        for session in sessions.values():
            session.close()
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    report = measure(arguments.rounds)
    if arguments.json:
        print(json.dumps(report, indent=2))
    else:
        for name, figures in report.items():
            print(f"{name}, batch {BATCH}")
            for which, figure in figures.items():
                print(
                    f"  {which:8} {figure['microseconds']:7.0f} us  {figure['ratio']:.2f} of raw"
                    f"  ({figure['undisturbed']:.2f} undisturbed)"
                )
    trained = report["[train_op, loss]"]
    return int(any(trained[which]["ratio"] > bar for which, bar in BARS.items()))


if __name__ == "__main__":
    raise SystemExit(main())
