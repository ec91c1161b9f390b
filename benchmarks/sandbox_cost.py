"""What the sandbox costs: once when a session opens, and for each call afterwards.

    python benchmarks/sandbox_cost.py [--json]

Opening: `apply` in fresh forks of a small process. Calls: a step of the same small graph in a
fork with and one without the sandbox, taking turns, so that both see the same machine. Bars: at
most 20 ms when opening, and a ratio of calls that cannot be told from 1.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
import tempfile
import time
from typing import Any

from sojourn.process import sandbox

OPENINGS = 50
ROUNDS, CALLS = 8, 2000
BAR_SECONDS = 0.020


def in_fork(act: Any, *arguments: Any) -> Any:
    answer, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(say, json.dumps(act(*arguments)).encode())
        finally:
            os._exit(0)
    os.close(say)
    with os.fdopen(answer, "rb") as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(text)


def opening(folder: str) -> tuple[float, float]:
    """Seconds by the clock, and of the processor: on a busy machine they differ."""
    start, used = time.perf_counter(), time.process_time()
    sandbox.apply(sandbox.Policy((folder,)))
    return time.perf_counter() - start, time.process_time() - used


def step_seconds(folder: str, is_sandboxed: bool) -> float:
    """The median time of a small step."""
    if is_sandboxed:
        sandbox.apply(sandbox.Policy((folder,)))
    import numpy as np
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 784])
        y = tf.nn.softmax(tf.matmul(x, tf.ones([784, 10])))
        call = session.make_callable(y, [x])
        data = np.ones((1, 784), np.float32)
        times = []
        for _ in range(CALLS):
            start = time.perf_counter()
            call(data)
            times.append(time.perf_counter() - start)
    return statistics.median(times[CALLS // 4 :])


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        measured = [in_fork(opening, folder) for _ in range(OPENINGS)]
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        importlib.import_module("tensorflow")  # imported, nothing run: as a zygote is
        pairs = [
            (in_fork(step_seconds, folder, True), in_fork(step_seconds, folder, False))
            for _ in range(ROUNDS)
        ]
    ratios = [inside / outside for inside, outside in pairs]
    openings = [clock for clock, _ in measured]
    median = statistics.median(openings)
    processor = statistics.median(used for _, used in measured)
    told = {
        "open_seconds": median,
        "open_processor_seconds": processor,
        "open_seconds_worst": max(openings),
        "step_seconds_sandboxed": statistics.median(p[0] for p in pairs),
        "step_seconds_plain": statistics.median(p[1] for p in pairs),
        "step_ratio": statistics.median(ratios),
        "step_ratio_spread": [min(ratios), max(ratios)],
        "holds": median <= BAR_SECONDS,
    }
    if "--json" in sys.argv[1:]:
        print(json.dumps(told, indent=2))
    else:
        print(
            f"opening: {median * 1e3:.1f} ms more, {processor * 1e3:.1f} ms of the processor"
            f" (worst of {OPENINGS}: {max(openings) * 1e3:.1f}; bar {BAR_SECONDS * 1e3:.0f} ms)\n"
            f"a step:  {told['step_seconds_sandboxed'] * 1e6:.1f} us sandboxed,"
            f" {told['step_seconds_plain'] * 1e6:.1f} us plain; ratio {told['step_ratio']:.3f}"
            f" (rounds {min(ratios):.3f} to {max(ratios):.3f})"
        )
    return 0 if told["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
