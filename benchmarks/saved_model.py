"""SavedModels: a call, and an open with its first result, against TensorFlow itself.

Everything is measured in turns, so that a busy machine disturbs both sides alike; what counts is
the ratio (of median calls, and of opens). The isolated side runs in this process, which loads no
TensorFlow; the raw side runs in one that has it imported.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import sojourn

BARS = {"call": 0.25, "open": 1.2}

_WRITE = """
import os, sys
import tensorflow as tf

folder, megabytes = sys.argv[1], int(sys.argv[2])

class Dense(tf.Module):
    def __init__(self, size):
        super().__init__()
        self.w1 = tf.Variable(tf.random.normal([784, 64]) * 0.1)
        self.w2 = tf.Variable(tf.random.normal([64, 10]) * 0.1)
        parts = 8 if size else 0
        self.big = [tf.Variable(tf.random.normal([size // 8, 2**18])) for _ in range(parts)]

    @tf.function(input_signature=[tf.TensorSpec([None, 784], name="x")])
    def serve(self, x):
        y = tf.nn.softmax(tf.nn.relu(x @ self.w1) @ self.w2)
        for part in self.big:
            y += part[0, :10] * 0
        return {"y": y}

for name, size in (("small", 0), ("large", megabytes)):
    module = Dense(size)
    tf.saved_model.save(module, os.path.join(folder, name), module.serve)
"""

_RAW = """
import os, sys, time
import numpy as np
import tensorflow as tf

folder = sys.argv[1]
x = np.ones((1, 784), np.float32)
small = None

def call(count):
    times = []
    for _ in range(count):
        started = time.perf_counter()
        small(x=tf.constant(x))["y"].numpy()
        times.append(time.perf_counter() - started)
    return sorted(times)[count // 2]

def open_once():
    model = tf.saved_model.load(os.path.join(folder, "large"))
    model.signatures["serving_default"](x=tf.constant(x))["y"].numpy()

print("ready", flush=True)
for line in sys.stdin:
    what, _, count = line.partition(" ")
    if what == "call" and small is None:
        small = tf.saved_model.load(os.path.join(folder, "small")).signatures["serving_default"]
    # TensorFlow keeps the memory of an earlier load and would use it again: each open gets a
    # process that has imported TensorFlow and done nothing else.
    if what == "open" and os.fork():
        os.wait()
        continue
    if what == "call":
        print(call(int(count)), flush=True)
        continue
    started = time.perf_counter()
    open_once()
    print(time.perf_counter() - started, flush=True)
    os._exit(0)
"""


class Raw:
    """TensorFlow itself, in a process of its own that makes one measurement at a time."""

    def __init__(self, folder: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _RAW, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # a single thread, because it forks
        )
        assert self._answer() == "ready"

    def measure(self, what: str, count: int = 1) -> float:
        """Return the seconds of an open, or of the median of this many calls."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what} {count}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def ratio_of(
    rounds: int, ours: Callable[[], float], theirs: Callable[[], float]
) -> dict[str, float]:
    """Return the medians of both sides, measured in turns, and the median of their ratios."""
    pairs = [(ours(), theirs()) for _ in range(rounds)]
    return {
        "ours": statistics.median(a for a, _ in pairs),
        "theirs": statistics.median(b for _, b in pairs),
        "ratio": statistics.median(a / b for a, b in pairs),
    }


def measure(rounds: int, megabytes: int) -> dict[str, Any]:
    """Return both ratios."""
    calls = 200
    x = np.ones((1, 784), np.float32)
    sojourn.warm_up(wait=True)
    with tempfile.TemporaryDirectory() as folder:
        write = [sys.executable, "-c", _WRITE, folder, str(megabytes)]
        subprocess.run(write, check=True, stderr=subprocess.DEVNULL)
        large = os.path.join(folder, "large")
        size = sum(p.stat().st_size for p in Path(large).rglob("*") if p.is_file())
        raw = Raw(folder)

        def open_once() -> float:
            started = time.perf_counter()
            session = sojourn.open(large)
            session.run("y", {"x": x})
            seconds = time.perf_counter() - started
            session.close()
            return seconds

        # Before the first call there: a process that has run an op must not fork.
        open_once()
        raw.measure("open")
        opened = ratio_of(rounds, open_once, lambda: raw.measure("open"))

        with sojourn.open(os.path.join(folder, "small")) as session:

            def call() -> float:
                times = []
                for _ in range(calls):
                    started = time.perf_counter()
                    session.run("y", {"x": x})
                    times.append(time.perf_counter() - started)
                return statistics.median(times)

            call()
            raw.measure("call", calls)
            called = ratio_of(rounds, call, lambda: raw.measure("call", calls))
        raw.close()
    return {"call": called, "open": {**opened, "megabytes": size / 1e6}, "bars": BARS}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--megabytes", type=int, default=400, help="size of the model to open")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = measure(options.rounds, options.megabytes)
    if options.json:
        print(json.dumps(result))
    else:
        for what, bar in BARS.items():
            one = result[what]
            print(
                f"{what}: {one['ours'] * 1e6:.0f} us against {one['theirs'] * 1e6:.0f} us, "
                f"ratio {one['ratio']:.3f} (bar {bar})"
            )
    return int(any(result[what]["ratio"] > bar for what, bar in BARS.items()))


if __name__ == "__main__":
    sys.exit(main())
