"""What writing events costs: an isolated call with JSON lines on, against off.

One session, batch 1, TensorFlow's softmax regression. Writing is switched on and off from block to
block within one run, in an order that is drawn anew for each pair. Prints the median over the pairs
of the ratio of the blocks' medians; the bar is 1.05. The second ratio compares the total time of
the calls, and so includes the periodic reporting and measuring.

    python benchmarks/events_overhead.py [--pairs 300] [--seconds 0.05] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time

import numpy as np

import sojourn

BAR = 1.05
IMAGE = np.ones((1, 784), np.float32)


def softmax_regression():
    """784 inputs, 10 classes; built in the worker."""
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 784], name="x")
    w = v1.get_variable("w", [784, 10], initializer=v1.ones_initializer())
    return {"x": x}, {"y": tf.nn.softmax(tf.matmul(x, w))}


def block(session: sojourn.Session, seconds: float) -> list[float]:
    """Return the seconds of each call in a stretch of time."""
    clock, times = time.perf_counter, []
    feeds = {"x": IMAGE}
    until = clock() + seconds
    while True:
        began = clock()
        if began > until:
            return times
        session.run("y", feeds)
        times.append(clock() - began)


def measure(pairs: int, seconds: float) -> dict[str, list[list[float]]]:
    """Return the times of every block, by whether events were written."""
    times: dict[str, list[list[float]]] = {"on": [], "off": []}
    with (
        tempfile.TemporaryDirectory() as folder,
        sojourn.open(softmax_regression) as session,
    ):
        path = os.path.join(folder, "events.jsonl")
        block(session, 1.0)
        for _ in range(pairs):
            for which in random.sample(["on", "off"], 2):
                stop = sojourn.events.write_lines(path) if which == "on" else None
                times[which].append(block(session, seconds))
                if stop is not None:
                    stop()
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=0.05, help="of each block")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    times = measure(options.pairs, options.seconds)
    medians = {which: [statistics.median(b) for b in blocks] for which, blocks in times.items()}
    pairs = zip(medians["on"], medians["off"], strict=True)
    ratio = statistics.median(on / off for on, off in pairs)
    p50 = {which: statistics.median(one) for which, one in medians.items()}
    mean = {which: sum(map(sum, blocks)) / sum(map(len, blocks)) for which, blocks in times.items()}
    results = {
        "on_p50_seconds": p50["on"],
        "off_p50_seconds": p50["off"],
        "ratio": ratio,
        "ratio_of_means": mean["on"] / mean["off"],
        "bar": BAR,
        "passed": ratio <= BAR,
    }
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        print(f"events on  {p50['on'] * 1e6:7.1f} us a call")
        print(f"events off {p50['off'] * 1e6:7.1f} us a call")
        print(f"ratio {ratio:.3f} (bar {BAR}), of the mean calls {results['ratio_of_means']:.3f}")
    return 0 if results["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
