"""Random sessions with random faults, and the same invariants after every round.

    python benchmarks/soak.py --sessions 20000

Everything follows from the seed. A round that breaks an invariant is printed with what was done in
it, and can be run again: `--seed S --round R`, with `--times N` if it fails only now and then.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import json
import logging
import os
import random
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from soak_rounds import Round, kill_zygote, killed_zygotes

import sojourn
from sojourn import events
from sojourn.process.zygote import zygote
from sojourn.testing import Watch, leftovers, take_snapshot
from sojourn.testing.injection import INJECTED

GROWTH_BYTES = 5 * 2**20
FIRST_ROUNDS = 3  # until everything that is loaded once has been
TELL_EVERY = 1000  # sessions
complaints: list[str] = []  # of threads and finalizers, which nobody would hear otherwise
MATRIX = np.random.default_rng(7).normal(size=(16, 16))


def product() -> Any:
    return lambda x: x @ x.T


class Soak:
    """Rounds, one after the other, and what must hold after each."""

    def __init__(self, seed: int, bystander: sojourn.Session) -> None:
        self._seed = seed
        self._bystander = bystander
        self._expected = self._answer()
        self._before = take_snapshot()
        self._growth_bytes: int | None = None  # any, until there is a baseline
        self._ended_zygotes: set[int] = set()
        self.sessions = 0
        self.rounds = 0
        self.faults: collections.Counter[str] = collections.Counter()

    def run(self, number: int) -> None:
        """One round; AssertionError with everything that is needed to see it again."""
        round = Round(f"{self._seed}:{number}")
        try:
            with Watch() as watch, self._zygotes_watched():
                round.run()
                sojourn.warm_up(wait=True)  # it may have been killed
                wrong = self._leftovers()
            wrong += watch.wrong() + complaints
            wrong += [f"zygote {pid} ended by itself" for pid in self._unexplained()]
            assert not wrong, "; ".join(wrong)
            assert self._answer() == self._expected, "another session gave other bits"
        except BaseException as error:
            told = f"seed {self._seed}, round {number}: {', '.join(round.done)}: {error!r}"
            raise AssertionError(told) from error
        self.sessions += round.sessions
        self.rounds += 1
        self.faults.update(round.faults)

    def take_baseline(self) -> None:
        """Nothing may be there from now on that is not there now."""
        if zygote.pid is not None:
            kill_zygote(zygote.pid)  # so that it is one that knows of nobody, as those to come
        sojourn.warm_up(wait=True)
        self._before, self._growth_bytes = take_snapshot(), GROWTH_BYTES

    def _leftovers(self) -> list[str]:
        return leftovers(self._before, seconds=10.0, growth_bytes=self._growth_bytes)

    def _answer(self) -> bytes:
        return bytes(self._bystander.run("output", {"x": MATRIX}).tobytes())

    def _unexplained(self) -> list[int]:
        return sorted(self._ended_zygotes - killed_zygotes)

    @contextlib.contextmanager
    def _zygotes_watched(self) -> Iterator[None]:
        """One that finds itself unfit ends, and is replaced without a word: that is a leak too."""

        def hear(event: events.Event) -> None:
            if event.kind == "zygote.ended":
                self._ended_zygotes.add(event.detail["zygote_pid"])

        stop = events.subscribe(hear)
        try:
            yield
        finally:
            stop()


def soak(seed: int, sessions: int, rounds: Iterable[int], seconds: float) -> dict[str, Any]:
    """Run these rounds until there were enough sessions, or the time is over."""
    started = time.monotonic()
    # A session that no fault is about; its answer never changes.
    with sojourn.open(product, name="bystander") as bystander:
        whole = Soak(seed, bystander)
        for number in range(1, FIRST_ROUNDS + 1):
            whole.run(number)
        whole.take_baseline()
        told = 0
        for number in rounds:
            if whole.sessions >= sessions or time.monotonic() - started > seconds:
                break
            whole.run(number)
            if whole.sessions // TELL_EVERY > told:
                told = whole.sessions // TELL_EVERY
                passed = time.monotonic() - started
                print(f"{whole.sessions} sessions, {passed:.0f} s", file=sys.stderr, flush=True)
    return {
        "seed": seed,
        "sessions": whole.sessions,
        "faults": whole.faults.total(),
        "rounds": whole.rounds,
        "seconds": round(time.monotonic() - started, 1),
        "left": 0,
        "faults_by_kind": dict(sorted(whole.faults.items())),
    }


def _hear_complaints() -> None:
    def from_finalizer(told: Any) -> None:
        if str(told.exc_value) != INJECTED:  # that one Python could not raise where it came
            complaints.append(f"{told.exc_value!r} in {told.object!r}")

    def from_thread(told: threading.ExceptHookArgs) -> None:
        complaints.append(f"{told.exc_value!r} in {told.thread}")

    sys.unraisablehook, threading.excepthook = from_finalizer, from_thread


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=600)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no longer than this")
    parser.add_argument("--seed", type=int, default=None, help="of a failure, to see it again")
    parser.add_argument("--round", type=int, default=None, help="only this one")
    parser.add_argument("--times", type=int, default=1, help="how often, with --round")
    options = parser.parse_args()
    os.environ.setdefault("SOJOURN_PRELOAD", "none")  # the faults are not TensorFlow's
    warnings.simplefilter("ignore", ResourceWarning)  # forgetting is one of the faults
    logging.disable(logging.CRITICAL)
    _hear_complaints()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    rounds: Iterable[int] = itertools.count(FIRST_ROUNDS + 1)
    sessions = options.sessions
    if options.round is not None:
        rounds, sessions = [options.round] * options.times, sys.maxsize
    try:
        with tempfile.TemporaryDirectory(prefix="sojourn-soak-") as own:
            tempfile.tempdir = os.environ["TMPDIR"] = own  # what is left there is ours
            os.environ["XDG_RUNTIME_DIR"] = os.path.join(own, "runtime")
            os.mkdir(os.environ["XDG_RUNTIME_DIR"])
            print(json.dumps(soak(seed, sessions, rounds, options.seconds)))
    except AssertionError as failure:
        print(failure, file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
