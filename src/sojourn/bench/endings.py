"""How much memory the end of a session returns, and how soon."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import sojourn
from sojourn.bench import model
from sojourn.bench.harness import Row, p50, percentile
from sojourn.probes import memory, processes
from sojourn.testing import leftovers, take_snapshot

_HELD_MEGABYTES = 400

_VICTIM = """
import sojourn, sys
from sojourn.bench import model
session = sojourn.open(model.holding(1024))
session.run("sum")
print(session.pid, flush=True)
while True:
    session.run("sum")
"""


def rows(progress: Callable[[str], None], *, quick: bool = False) -> Iterator[Row]:
    """Measure closing, repeated sessions, and killing the client."""
    yield from _memory_back(progress, 2 if quick else 5)
    yield from _repeat(progress, 100 if quick else 1000)
    yield from _kill_client(progress, 3 if quick else 20)


def _memory_back(progress: Callable[[str], None], times: int) -> Iterator[Row]:
    progress(f"memory back after close, {_HELD_MEGABYTES} MiB of variables")
    not_back, seconds = [], []
    for _ in range(times):
        session = sojourn.open(model.holding(_HELD_MEGABYTES))
        session.run("sum")
        receipt = session.close()
        not_back.append(1 - receipt.returned_bytes / receipt.held_bytes)
        seconds.append(receipt.seconds)
        assert receipt.clean, receipt
    yield Row("share of the memory not returned by close", max(not_back), bar=0.0, unit="")
    yield Row(f"close, {_HELD_MEGABYTES} MiB held", p50(seconds), bar=0.1, unit="s")
    # By default oneDNN is on for newer processors and off for older ones.
    for how, one_dnn in (("with oneDNN", "1"), ("without oneDNN", "0")):
        kept = _raw_kept(one_dnn)
        yield Row(f"share not returned by raw TensorFlow {how}", kept, unit="", note="compare")


def _raw_kept(one_dnn: str) -> float:
    """Return the share of its variables' memory that a raw session keeps after close.

    oneDNN's allocator returns nothing; without oneDNN, large blocks return to the system and many
    small ones stay.
    """
    code = (
        "import gc, tensorflow as tf\n"
        "from sojourn.bench import model\n"
        "from sojourn.bench.endings import anonymous\n"
        "v1 = tf.compat.v1\n"
        "def warm():\n"
        "    with v1.Graph().as_default(), v1.Session() as s: s.run(tf.constant(1))\n"
        "warm()\n"
        "before = anonymous()\n"
        "with v1.Graph().as_default(), v1.Session() as session:\n"
        f"    outputs = model.holding({_HELD_MEGABYTES})()[1]\n"
        "    session.run(v1.global_variables_initializer()); session.run(outputs['sum'])\n"
        "    held = anonymous()\n"
        "del session, outputs; gc.collect()\n"
        "print((anonymous() - before) / (held - before))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
        env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": one_dnn},
    )
    return float(done.stdout)


def anonymous() -> int:
    """Return this process's anonymous memory: pages that no file backs."""
    gc.collect()
    reading = memory.of_process()
    return reading.anonymous_bytes if reading else 0


def _repeat(progress: Callable[[str], None], cycles: int) -> Iterator[Row]:
    progress(f"{cycles} sessions from 8 threads")
    x = model.batch(1)

    def some(count: int) -> None:
        def stay() -> None:
            for _ in range(count // 8):
                with sojourn.open(model.build) as session:
                    session.run("y", {"x": x})

        threads = [threading.Thread(target=stay) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    some(56)
    before = take_snapshot()
    started = time.monotonic()
    some(cycles)
    seconds = (time.monotonic() - started) / cycles
    left = leftovers(before)
    after = take_snapshot()
    yield Row(
        f"things left after {cycles} sessions", len(left), bar=0, unit="", note="; ".join(left)
    )
    grown = max(0, after.held_bytes - before.held_bytes)
    yield Row("growth of client and zygote", grown, bar=5 * 2**20, unit="bytes")
    yield Row("open, run, close under load", seconds, unit="s")


def _kill_client(progress: Callable[[str], None], times: int) -> Iterator[Row]:
    progress(f"client killed in a step of a 1 GiB worker, {times} times")
    delays = []
    for _ in range(times):
        victim = subprocess.Popen(
            [sys.executable, "-c", _VICTIM], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert victim.stdout is not None
        worker = int(victim.stdout.readline())
        pidfd = os.pidfd_open(worker)
        time.sleep(0.05)
        started = time.monotonic()
        victim.send_signal(signal.SIGKILL)
        _wait_for_end(pidfd)
        delays.append(time.monotonic() - started)
        os.close(pidfd)
        victim.communicate()
        while processes.of_client(victim.pid):
            time.sleep(0.01)
    yield Row("worker gone after SIGKILL of the client (p99)", percentile(delays, 0.99), bar=0.1)


def _wait_for_end(pidfd: int) -> None:
    import select

    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll(10_000)
