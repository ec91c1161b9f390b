"""What must hold in a program that the tests start: told on its standard error when it exits."""

from __future__ import annotations

import atexit
import os
import resource
import sys
import time

from sojourn.process import exits
from sojourn.testing import Snapshot, Watch, leftovers, take_snapshot

SECONDS = 10.0
# A program begins from nothing: what it loads and allocates once is more than what a test may leak.
GROWTH_BYTES = 8 * 2**20


class Judgement:
    """Of this program, from now until it exits, or until it is told to `stop`."""

    def __init__(self) -> None:
        self._pid: int | None = os.getpid()
        self._watch = Watch()
        self._watch.__enter__()
        self._before = take_snapshot(strict=True)
        # Handlers run last in, first out: after ours, when all sessions have been closed.
        atexit.unregister(exits._run)
        atexit.register(self._judge)
        atexit.register(exits._run)

    def stop(self) -> None:
        """What is left from now on is left on purpose."""
        self._pid = None

    def _judge(self) -> None:
        if os.getpid() != self._pid:
            return  # a fork has inherited the handler
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        deadline = time.monotonic() + SECONDS
        while (found := _found(self._before) + self._watch.wrong()) and time.monotonic() < deadline:
            time.sleep(0.02)
        if found:
            print("left behind:", "; ".join(found), file=sys.stderr)


def _found(before: Snapshot) -> list[str]:
    left = leftovers(before, seconds=0, growth_bytes=GROWTH_BYTES, temporary_folder=False)
    # Daemons of its own may outlive a program; files are seen from outside, whoever has left them.
    return [
        one
        for one in left
        if not one.endswith("/dev/shm") and (not one.startswith("thread ") or "sojourn" in one)
    ]
