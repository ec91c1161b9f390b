"""The two sides of the demo: its program in two processes that work in turns."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

HIDDEN_UNITS = (6000, 9000, 12000)
_TURNS = 6

Facts = dict[str, Any]


class SideFailed(Exception):
    """One of the programs ended too early; the message has what it wrote to stderr."""


class Side:
    """One running program: its reports, and the commands that it gets."""

    def __init__(self, which: str, sizes: Sequence[int]) -> None:
        self.which = which
        self.imported: Facts = {}
        self.models: list[Facts] = []
        self._errors = tempfile.TemporaryFile("w+")  # a pipe that nobody reads would fill up
        self._program = subprocess.Popen(
            [sys.executable, "-m", "sojourn.demo.program", which, *map(str, sizes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )

    def wait_for(self, kind: str) -> Iterator[Facts]:
        """Yield its messages up to the first one of this kind, inclusive."""
        assert self._program.stdout is not None
        for line in self._program.stdout:
            facts = json.loads(line)
            yield facts
            if facts["kind"] == kind:
                return
        code = self._program.wait()
        self._errors.seek(0)
        raise SideFailed(f"the {self.which} program ended with code {code}\n{self._errors.read()}")

    def next_of(self, kind: str) -> Facts:
        """Wait for the next message of this kind and return it."""
        *_, facts = self.wait_for(kind)
        return facts

    def work(self, what: str) -> None:
        """Give it the turn, with this command."""
        assert self._program.stdin is not None
        try:
            self._program.stdin.write(what + "\n")
            self._program.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended; `wait_for` raises the error

    def end(self) -> None:
        """Kill the program. Its workers, if it has any, end with it."""
        self._program.kill()
        self._program.communicate()
        self._errors.close()


@contextmanager
def both(sizes: Sequence[int] = HIDDEN_UNITS) -> Iterator[tuple[Side, Side]]:
    """Start both sides, raw TensorFlow and sojourn; they end with the block."""
    sides: list[Side] = []
    try:
        sides += (
            Side(which, sizes) for which in ("raw", "sojourn")
        )  # not a list: if the second fails, the first is in `sides`
        for side in sides:
            side.imported = side.next_of("imported")
        yield sides[0], sides[1]
    finally:
        for side in sides:
            side.end()


def compare(sides: Sequence[Side], on_step: Callable[[Side, Facts], None]) -> list[Facts]:
    """Train one model on each side, call it in turns and close it; return the measurements."""
    for side in sides:
        side.work("train")
        for facts in side.wait_for("trained"):
            if facts["kind"] == "step":
                on_step(side, facts)
    seconds: dict[str, list[float]] = {side.which: [] for side in sides}
    for turn in range(_TURNS):
        for side in sides:
            side.work("call")
            took = side.next_of("calls")["seconds"]
            if turn:  # the first turn is a warm-up, on both sides
                seconds[side.which] += took
    results = []
    for side in sides:
        side.work("close")
        facts = side.next_of("closed")
        del facts["kind"]
        facts["returned"] = max(0, facts["held"] - facts["kept"])
        facts["call_seconds"] = statistics.median(seconds[side.which])
        side.models.append(facts)
        results.append(facts)
    return results
