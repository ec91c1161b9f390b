"""What the sandbox costs: once when a session opens, and for each call afterwards.

    python benchmarks/sandbox_cost.py [--json]

Opening: `apply` in fresh forks of a small process that is prepared like a zygote; and
`sojourn.open` of the same small model with and without `untrusted=True`, taking turns. Calls: a
step of the same small graph in a fork with and in a fork without the sandbox, taking turns, so that
both see the same machine. Bars: at most 20 ms when opening, and a ratio of calls that cannot be
told from 1.
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

import sojourn
from sojourn.process import sandbox

OPENINGS, SESSIONS = 50, 20
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
    """Return wall-clock seconds and CPU seconds: on a busy machine they differ."""
    start, used = time.perf_counter(), time.process_time()
    sandbox.apply(sandbox.Policy((folder,)))
    return time.perf_counter() - start, time.process_time() - used


def step_seconds(folder: str, is_sandboxed: bool) -> float:
    """Return the median time of a small step."""
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


def save_model(folder: str) -> str:
    import tensorflow as tf

    module = tf.Module()
    module.double = tf.function(lambda x: 2 * x, [tf.TensorSpec([None])])
    tf.saved_model.save(module, folder, module.double)
    return folder


def session_seconds(model: str, untrusted: bool) -> float:
    """Return how long a session takes to open, without the first result."""
    start = time.perf_counter()
    with sojourn.open(model, untrusted=untrusted):
        return time.perf_counter() - start


def main() -> int:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with tempfile.TemporaryDirectory() as folder:
        sandbox.prepare()
        measured = [in_fork(opening, folder) for _ in range(OPENINGS)]
        model = sojourn.isolated(save_model)(os.path.join(folder, "model"))
        session_seconds(model, True)
        sessions = [
            (session_seconds(model, True), session_seconds(model, False)) for _ in range(SESSIONS)
        ]
        importlib.import_module("tensorflow")  # imported, nothing run: like a zygote
        pairs = [
            (in_fork(step_seconds, folder, True), in_fork(step_seconds, folder, False))
            for _ in range(ROUNDS)
        ]
    ratios = [sandboxed / plain for sandboxed, plain in pairs]
    openings = [clock for clock, _ in measured]
    median = statistics.median(openings)
    processor = statistics.median(used for _, used in measured)
    inside, outside = (statistics.median(side) for side in zip(*sessions, strict=True))
    told = {
        "session_open_seconds_untrusted": inside,
        "session_open_seconds_trusted": outside,
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
            f"a session: {inside * 1e3:.1f} ms untrusted, {outside * 1e3:.1f} ms trusted"
            f" (medians of {SESSIONS})\n"
            f"a step:  {told['step_seconds_sandboxed'] * 1e6:.1f} us sandboxed,"
            f" {told['step_seconds_plain'] * 1e6:.1f} us plain; ratio {told['step_ratio']:.3f}"
            f" (rounds {min(ratios):.3f} to {max(ratios):.3f})"
        )
    return 0 if told["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
