"""Restores while another process saves to the same path without pause.

Each restore must give one whole state: at least as new as the last save acknowledged before the
restore began, and not newer than the save under way when it ended.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import signal
import struct
import sys
import tempfile
import time
from typing import Any

import sojourn

_NUMBERS = struct.Struct("<qq")  # the last save that began, and the last one acknowledged


def counting() -> Any:
    """One number in a variable that is long enough to be torn."""
    import tensorflow as tf

    v1 = tf.compat.v1
    amount = v1.placeholder(tf.float32, [], name="amount")
    values = v1.get_variable("values", [2**16], initializer=v1.zeros_initializer())
    store = v1.assign(values, tf.fill([2**16], amount)).op
    return {"amount": amount}, {
        "store": store,
        "least": tf.reduce_min(values),
        "most": tf.reduce_max(values),
    }


def _save_for_ever(path: str, shared: mmap.mmap) -> None:
    with sojourn.open(counting) as session:
        number = 0
        while True:
            number += 1
            session.run("store", {"amount": float(number)})
            shared[:] = _NUMBERS.pack(number, number - 1)
            session.save(path)
            shared[:] = _NUMBERS.pack(number, number)


def restore_beside(count: int, folder: str) -> dict[str, int]:
    """Restore this many times, and check each restored state."""
    path = os.path.join(folder, "state")
    shared = mmap.mmap(-1, _NUMBERS.size)
    child = os.fork()
    if child == 0:
        _save_for_ever(path, shared)
    results = {"restores": count, "failed": 0, "torn": 0, "neither": 0}
    try:
        with sojourn.open(counting) as session:
            while _NUMBERS.unpack(shared[:])[1] == 0:
                time.sleep(0.01)
            for _ in range(count):
                acknowledged = _NUMBERS.unpack(shared[:])[1]
                try:
                    session.restore(path)
                except sojourn.CheckpointError as error:
                    results["failed"] += 1
                    print(error, file=sys.stderr)
                    continue
                begun = _NUMBERS.unpack(shared[:])[0]
                least, most = session.run(["least", "most"])
                results["torn"] += int(least != most)
                results["neither"] += int(not acknowledged <= least <= begun)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    results["saves"] = _NUMBERS.unpack(shared[:])[1]
    with sojourn.open(counting) as session:
        session.restore(path)
    results["left"] = len(os.listdir(folder)) - 1
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--restores", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = restore_beside(options.restores, folder)
    print(json.dumps(results) if options.json else results)
    return int(any(results[fault] for fault in ("failed", "torn", "neither", "left")))


if __name__ == "__main__":
    sys.exit(main())
