"""What must hold after every round of `soak.py`, and the loop over the rounds of one kind."""

from __future__ import annotations

import collections
import contextlib
import gc
import importlib
import itertools
import logging
import os
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from soak_rounds import (
    EACH_IN_TURN,
    FUNCTIONS,
    GRAPHS,
    LIVE,
    Kept,
    KeptGraph,
    Round,
    kill_zygote,
    killed_zygotes,
    kind_of,
)

import sojourn
from sojourn import events
from sojourn.process.zygote import zygote
from sojourn.testing import Watch, leftovers, take_snapshot
from sojourn.testing.injection import INJECTED

# In bytes. TensorFlow keeps part of every graph built in a process, and more if it ran there.
GROWTH_BYTES = {FUNCTIONS: 5 * 2**20, GRAPHS: 5 * 2**20, LIVE: 32 * 2**20}
TELL_EVERY = 1000  # sessions
OPEN_SECONDS, OPEN_SECONDS_WITH_ZYGOTE = 1.0, 10.0
THEMES = ["soak_uses", "soak_faults", "soak_clients", "soak_functions", "soak_graphs"]
complaints: list[str] = []  # errors in threads and finalizers, which would go unnoticed
MATRIX = np.random.default_rng(7).normal(size=(16, 16))


def product() -> Any:
    return lambda x: x @ x.T


class Soak:
    """Rounds, one after the other, and what must hold after each."""

    def __init__(self, kind: str, seed: int, bystander: sojourn.Session) -> None:
        self._kind = kind
        self._seed = seed
        self._bystander = bystander
        self._expected = self._answer()
        self._before = take_snapshot(strict=True)
        self._growth_bytes: int | None = None  # no limit until the baseline is taken
        self._ended_zygotes: set[int] = set()
        self.sessions = 0
        self.rounds = 0
        self.faults: collections.Counter[str] = collections.Counter()

    def run(self, number: int) -> None:
        """Run one round; an AssertionError carries all that is needed to reproduce a failure."""
        print(f"round {number}", flush=True)
        round = Round(self._seed, number)
        try:
            with Watch() as watch, self._zygotes_watched():
                before = zygote.pid
                round.run()
                self._check_next_open(before)
                gc.collect()  # one of the faults is to forget a session
                wrong = self._leftovers()
            wrong += watch.wrong() + complaints
            wrong += [f"zygote {pid} ended by itself" for pid in self._unexplained()]
            assert not wrong, "; ".join(wrong)
            assert self._answer() == self._expected, "another session gave other bits"
        except BaseException as error:
            told = f"seed {self._seed}, round {number}: {', '.join(round.done)}: {error!r}"
            raise AssertionError(told) from error
        self.sessions += round.sessions + 1
        self.rounds += 1
        self.faults.update(round.faults)

    def take_baseline(self) -> None:
        """Take the snapshot: anything that does not exist now counts as left over from now on."""
        if zygote.pid is not None and self._kind == FUNCTIONS:
            kill_zygote(zygote.pid)  # so that the next one is as new as those to come
        sojourn.warm_up(wait=True)
        self._before = take_snapshot(strict=True)
        self._growth_bytes = GROWTH_BYTES[self._kind]

    def _check_next_open(self, zygote_before: int | None) -> None:
        """Open within a second, or ten for a new zygote; a busy machine may take longer."""
        for _ in range(3):  # other programs may have slowed down a single attempt
            started = time.monotonic()
            kept = (Kept if self._kind == FUNCTIONS else KeptGraph)()
            with kept.session:
                kept.add(1)
            seconds = time.monotonic() - started
            is_new, zygote_before = zygote.pid != zygote_before, zygote.pid
            limit = OPEN_SECONDS_WITH_ZYGOTE if is_new else OPEN_SECONDS
            limit *= max(1.0, os.getloadavg()[0])
            if seconds <= limit:
                return
        raise AssertionError(f"the next open took {seconds:.1f} s")

    def _leftovers(self) -> list[str]:
        return leftovers(self._before, seconds=10.0, growth_bytes=self._growth_bytes)

    def _answer(self) -> bytes:
        return bytes(self._bystander.run("output", {"x": MATRIX}).tobytes())

    def _unexplained(self) -> list[int]:
        return sorted(self._ended_zygotes - killed_zygotes)

    @contextlib.contextmanager
    def _zygotes_watched(self) -> Iterator[None]:
        """Record zygotes that end: one that finds itself unfit to fork ends and is replaced without
        an error, which is a leak too."""

        def hear(event: events.Event) -> None:
            if event.kind == "zygote.ended":
                self._ended_zygotes.add(event.detail["zygote_pid"])

        stop = events.subscribe(hear)
        try:
            yield
        finally:
            stop()


def soak(
    kind: str, seed: int, sessions: int, rounds: Iterator[int], seconds: float
) -> dict[str, Any]:
    """Run these rounds until there were enough sessions or the time is over."""
    started = time.monotonic()
    _prepare(kind)
    # A session that no fault touches; its answer never changes.
    with sojourn.open(product, name="bystander") as bystander:
        whole = Soak(kind, seed, bystander)
        whole.run(EACH_IN_TURN[kind])  # loads everything that is loaded once
        whole.take_baseline()
        enough = sessions + whole.sessions  # in addition to those of the first round
        told = 0
        while whole.sessions < enough and time.monotonic() - started <= seconds:
            number = next(rounds, None)
            if number is None:
                break
            whole.run(number)
            if whole.sessions // TELL_EVERY > told:
                told = whole.sessions // TELL_EVERY
                passed = time.monotonic() - started
                line = f"{whole.sessions} sessions of {kind}, {passed:.0f} s"
                print(line, file=sys.stderr, flush=True)
    return {
        "sessions": whole.sessions,
        f"sessions_of_{kind}": whole.sessions,
        "faults": whole.faults.total(),
        "rounds": whole.rounds,
        "seconds": time.monotonic() - started,
        "next_round": next(rounds, 0),
        "faults_by_kind": dict(whole.faults),
    }


def rounds_of(kind: str, first: int) -> Iterator[int]:
    """Yield all rounds of a kind from this one on, except the one every process begins with."""
    every = (number for number in itertools.count(first) if kind_of(number) == kind)
    return (number for number in every if number != EACH_IN_TURN[kind])


def _prepare(kind: str) -> None:
    warnings.simplefilter("ignore", ResourceWarning)  # one of the faults is to forget a session
    logging.disable(logging.CRITICAL)
    _hear_complaints()
    for theme in THEMES:
        importlib.import_module(theme)
    if kind == FUNCTIONS:
        os.environ["SOJOURN_PRELOAD"] = "none"
        return
    from soak_graphs import write_files

    with _silence():  # TensorFlow prints a lot
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        sojourn.warm_up()
        if kind == LIVE:
            importlib.import_module("tensorflow")
        else:
            write_files(os.environ["TMPDIR"])
    gc.collect()
    gc.freeze()  # none of this is garbage, and scanning it takes time


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(nowhere)
        os.close(kept)


def _hear_complaints() -> None:
    def from_finalizer(told: Any) -> None:
        if str(told.exc_value) != INJECTED:  # the injected error, raised where Python cannot
            complaints.append(f"{told.exc_value!r} in {told.object!r}")

    def from_thread(told: threading.ExceptHookArgs) -> None:
        where = traceback.extract_tb(told.exc_traceback)[-3:]
        lines = " < ".join(f"{frame.filename}:{frame.lineno}" for frame in reversed(where))
        complaints.append(f"{told.exc_value!r} in {told.thread} at {lines}")

    sys.unraisablehook, threading.excepthook = from_finalizer, from_thread
