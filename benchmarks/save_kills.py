"""Kills at random moments of saves: no acknowledged state may be lost.

Two kinds, one after the other. A worker is killed while its session is saved: the next step must
find the last acknowledged state. And the process that saves is killed itself: the state at the path
must be whole and at least as new as the last acknowledged one, and the next read must leave no
leftovers.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import sojourn
from sojourn.session import checkpoints


def counting() -> Any:
    """A counter, and enough other data for a save to take a while."""
    import tensorflow as tf

    v1 = tf.compat.v1
    count = v1.get_variable("count", [], initializer=v1.zeros_initializer())
    ballast = v1.get_variable("ballast", [2**19], initializer=v1.ones_initializer())
    return {}, {"next": v1.assign_add(count, 1.0), "count": count, "ballast": ballast[0]}


def kill_workers(kills: int, folder: str, draw: random.Random) -> dict[str, int]:
    """Kill the worker of a session again and again while it is saved."""
    lost = interrupted = 0
    path = os.path.join(folder, "state")
    with sojourn.open(counting, restart="from-checkpoint") as session:
        session.save(path)
        acknowledged, usual = 0.0, 0.05
        for _ in range(kills):
            value = session.run("next")
            timer = threading.Timer(draw.uniform(0, 1.2 * usual), _kill, [session.pid])
            started = time.monotonic()
            timer.start()
            try:
                session.save(path)
                usual = 0.8 * usual + 0.2 * (time.monotonic() - started)
                acknowledged = value
            except sojourn.SessionBroken:
                interrupted += 1
            timer.join()
            # If the worker was killed just after the save, only the next step notices.
            try:
                found = session.run("count")
            except sojourn.SessionBroken:
                found = session.run("count")
            lost += int(found != acknowledged)
        left = len(os.listdir(folder)) - 1
    return {"kills": kills, "interrupted": interrupted, "lost": lost, "left": left}


def kill_clients(kills: int, folder: str, draw: random.Random) -> dict[str, int]:
    """Kill a process that saves continuously, and check what it leaves."""
    lost = with_leftovers = left = saves = 0
    path = os.path.join(folder, "state")
    for _ in range(kills):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            _save_for_ever(path, writer)
        os.close(writer)
        told = os.read(reader, 2)  # it has saved once; the kill comes at any moment of a later save
        time.sleep(draw.uniform(0, 0.06))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with open(reader, "rb") as acknowledgements:
            numbers = (told + acknowledgements.read()).split()
        with_leftovers += len(os.listdir(folder)) > 1
        saves += len(numbers)
        try:
            with checkpoints.opened(path) as saved:
                found = int(Path(os.fsdecode(saved.prefix()) + ".index").read_text())
        except sojourn.CheckpointError:
            lost += 1
            continue
        # One more save may be in place that the process had no time to report.
        lost += found not in (int(numbers[-1]), int(numbers[-1]) + 1)
        left += len(os.listdir(folder)) - 1
    return {
        "kills": kills,
        "saves": saves,
        "with leftovers": with_leftovers,
        "lost": lost,
        "left": left,
    }


def _save_for_ever(path: str, writer: int) -> None:
    number = 0
    content = os.urandom(2**20)
    while True:
        number += 1

        def produce(prefix: bytes) -> checkpoints.Written:
            name = os.fsdecode(prefix)
            Path(name + ".index").write_text(str(number))  # noqa: B023 - called at once
            Path(name + ".data-00000-of-00001").write_bytes(content)
            return checkpoints.Written(["v"], [])

        checkpoints.write(path, produce, "soak")
        os.write(writer, b"%d\n" % number)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    half = options.kills // 2
    results = {}
    with tempfile.TemporaryDirectory() as folder:  # before any thread starts: this part forks
        results["process that saves"] = kill_clients(options.kills - half, folder, draw)
    with tempfile.TemporaryDirectory() as folder:
        results["worker of a session"] = kill_workers(half, folder, draw)
    if options.json:
        print(json.dumps(results))
    else:
        for name, counts in results.items():
            print(f"{name}: " + ", ".join(f"{n} {what}" for what, n in counts.items()))
    return int(any(counts["lost"] or counts["left"] for counts in results.values()))


if __name__ == "__main__":
    sys.exit(main())
