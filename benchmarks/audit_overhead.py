"""What the audit costs a training loop: the same steps with and without it, interleaved.

Short stretches with and without the audit take turns, so that changes of the machine's speed affect
both. What counts is the ratio of the median steps of a pair; the median of these ratios and their
quartiles are printed. The bar is 1.05.

    python benchmarks/audit_overhead.py [--steps 100] [--pairs 60] [--batch 64] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable

import numpy as np

import sojourn.audit

BAR = 1.05


def training_loop(batch: int) -> Callable[[int], float]:
    """Return a function that trains for some steps in a new session; it returns the seconds of a
    median step."""
    import tensorflow.compat.v1 as tf

    tf.disable_eager_execution()
    rng = np.random.default_rng(0)
    images = rng.random((batch, 784), dtype=np.float32)
    labels = np.eye(10, dtype=np.float32)[rng.integers(0, 10, batch)]
    graph = tf.Graph()
    with graph.as_default():
        x = tf.placeholder(tf.float32, [None, 784])
        y = tf.placeholder(tf.float32, [None, 10])
        weights = tf.get_variable("weights", [784, 10], initializer=tf.zeros_initializer())
        bias = tf.get_variable("bias", [10], initializer=tf.zeros_initializer())
        logits = tf.matmul(x, weights) + bias
        loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits_v2(labels=y, logits=logits))
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
        init = tf.global_variables_initializer()

    def run(steps: int) -> float:
        with tf.Session(graph=graph) as session:
            session.run(init)
            for _ in range(20):
                session.run([train, loss], {x: images, y: labels})
            times = []
            for _ in range(steps):
                began = time.perf_counter()
                session.run([train, loss], {x: images, y: labels})
                times.append(time.perf_counter() - began)
            return statistics.median(times)

    return run


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    run = training_loop(options.batch)
    run(options.steps)
    ratios, raw_times = [], []
    for pair in range(options.pairs):
        # With and without the audit go first in turn.
        seconds = {}
        for audited in (pair % 2 == 0, pair % 2 == 1):
            if audited:
                with sojourn.audit.audit():
                    seconds[audited] = run(options.steps)
            else:
                seconds[audited] = run(options.steps)
        ratios.append(seconds[True] / seconds[False])
        raw_times.append(seconds[False])
    low, _, high = statistics.quantiles(ratios, n=4)
    result = {
        "raw_step_us": round(statistics.median(raw_times) * 1e6, 1),
        "ratio": round(statistics.median(ratios), 4),
        "quartiles": [round(low, 4), round(high, 4)],
        "pairs": options.pairs,
        "bar": BAR,
    }
    if options.json:
        print(json.dumps(result))
    else:
        print(f"raw step {result['raw_step_us']} us, audited {result['ratio']} of it "
              f"(quartiles {low:.3f} to {high:.3f}, {options.pairs} pairs, bar {BAR})")  # fmt: skip


if __name__ == "__main__":
    main()
