"""The demo's program: a TF1-style sweep that trains several models, one after the other.

Both sides run the same program. `python -m sojourn.demo.program raw 6000 9000` opens TensorFlow's
own sessions, `... sojourn 6000 9000` opens sojourn's by changing that one name. It reports its
progress as JSON lines, and between the stages waits for a line on standard input: a comparison
lets one side at a time work, so that neither is measured while the other is busy.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from typing import Any

import numpy as np

from sojourn.probes import memory

STEPS = 40
CALLS = 50  # per turn


def main(which: str, sizes: list[int]) -> None:
    """Train each model in its own session, and measure."""
    import tensorflow.compat.v1 as tf

    if which == "sojourn":
        import sojourn.compat.v1

        sojourn.warm_up(wait=True)
        session_class: Any = sojourn.compat.v1.Session
    else:
        session_class = tf.Session
    warm_up(tf)
    data = np.random.default_rng(0)
    images = data.random((64, 784), dtype=np.float32)
    labels = data.integers(0, 10, 64)
    at_start = held_bytes()
    tell("imported", standing=standing_bytes(which))
    for units in sizes:
        wait_for_turn()
        tf.reset_default_graph()
        x, y, train, loss, predictions = build(tf, units)
        with session_class() as sess:
            sess.run(tf.global_variables_initializer())
            for step in range(STEPS):
                _, now = sess.run([train, loss], {x: images, y: labels})
                tell("step", units=units, step=step + 1, steps=STEPS, loss=float(now))
            tell("trained")
            one = images[:1]
            while wait_for_turn() == "call":
                times = []
                for _ in range(CALLS):
                    started = time.perf_counter()
                    sess.run(predictions, {x: one})
                    times.append(time.perf_counter() - started)
                tell("calls", seconds=times)
            held = held_bytes() - at_start
        left = 0
        if which == "sojourn":  # most of the memory was in the session's worker
            held += sess.receipt.held_bytes
            left = sess.receipt.held_bytes - sess.receipt.returned_bytes
        del sess, x, y, train, loss, predictions
        tell("closed", units=units, held=held, kept=max(0, held_bytes() - at_start) + left)


def build(tf: Any, units: int) -> tuple[Any, Any, Any, Any, Any]:
    """Build a perceptron with one hidden layer."""
    x = tf.placeholder(tf.float32, [None, 784])
    y = tf.placeholder(tf.int64, [None])
    w1 = tf.get_variable("w1", [784, units], initializer=tf.glorot_uniform_initializer(seed=1))
    w2 = tf.get_variable("w2", [units, 10], initializer=tf.glorot_uniform_initializer(seed=2))
    logits = tf.matmul(tf.nn.relu(tf.matmul(x, w1)), w2)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    train = tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss)
    return x, y, train, loss, tf.argmax(logits, 1)


def warm_up(tf: Any) -> None:
    """Make TensorFlow start its threads, so that their memory does not count as a model's."""
    tf.disable_eager_execution()
    with tf.Graph().as_default(), tf.Session() as sess:
        sess.run(tf.matmul(tf.ones([64, 64]), tf.ones([64, 64])))


def held_bytes() -> int:
    """Return the memory of this process that no file backs."""
    gc.collect()
    reading = memory.of_process()
    return reading.anonymous_bytes if reading else 0


def standing_bytes(which: str) -> int:
    """Return the zygote's memory, which is held as long as the program runs, even without any
    session."""
    if which == "raw":
        return 0
    from sojourn.process.zygote import zygote

    reading = memory.of_process(zygote.pid) if zygote.pid is not None else None
    return reading.private_bytes if reading else 0


def wait_for_turn() -> str:
    """Wait for the next command and return it. Exits if the comparing process is gone."""
    line = sys.stdin.readline()
    if not line:
        raise SystemExit
    return line.strip()


def tell(kind: str, **facts: Any) -> None:
    """Write one line of progress."""
    print(json.dumps({"kind": kind, **facts}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], [int(size) for size in sys.argv[2:]])
