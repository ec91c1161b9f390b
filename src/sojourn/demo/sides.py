"""The two runs of the demo's program, each in a process of its own, that work in turns."""

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
    """One of the programs ended before its time; the message has what it wrote."""


class Side:
    """One program: what it reports, and its turn to work."""

    def __init__(self, which: str, sizes: Sequence[int]) -> None:
        self.which = which
        self.imported: Facts = {}
        self.models: list[Facts] = []
        self._errors = tempfile.TemporaryFile("w+")  # a pipe that is not read would fill up
        self._program = subprocess.Popen(
            [sys.executable, "-m", "sojourn.demo.program", which, *map(str, sizes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )

    def wait_for(self, kind: str) -> Iterator[Facts]:
        """Its messages up to the first of this kind, inclusive."""
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
        """The next of this kind."""
        *_, facts = self.wait_for(kind)
        return facts

    def work(self, what: str) -> None:
        """It is its turn."""
        assert self._program.stdin is not None
        try:
            self._program.stdin.write(what + "\n")
            self._program.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended; waiting for its answer says how

    def end(self) -> None:
        """It has nothing more to do. Its workers, should it have any, end with it."""
        self._program.kill()
        self._program.communicate()
        self._errors.close()


@contextmanager
def both(sizes: Sequence[int] = HIDDEN_UNITS) -> Iterator[tuple[Side, Side]]:
    """Raw TensorFlow and sojourn, both started; they end with the block."""
    sides: list[Side] = []
    try:
        sides += (
            Side(which, sizes) for which in ("raw", "sojourn")
        )  # one that fails ends the other
        for side in sides:
            side.imported = side.next_of("imported")
        yield sides[0], sides[1]
    finally:
        for side in sides:
            side.end()


def compare(sides: Sequence[Side], on_step: Callable[[Side, Facts], None]) -> list[Facts]:
    """Train one model on each, call it in turns, close it: what each side has measured."""
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
            if turn:  # the first is for getting warm, on both
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
