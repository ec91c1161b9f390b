"""What a round of `soak.py` is made of: sessions, steps, and faults that are done to them.

A round leaves nothing, and its sessions have counted right; whatever else must hold after it is
checked by who runs it.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import sojourn
from sojourn.process.zygote import zygote
from sojourn.testing.injection import Refusals, interrupted

killed_zygotes: set[int] = set()
PLAIN, FAIL, SLEEP, SPAWN, DIE = range(5)


def model() -> Any:
    """A sum that the worker keeps, and ways to misbehave."""
    total = 0.0

    def step(amount: Any, how: Any) -> Any:
        nonlocal total
        if how == FAIL:
            raise ValueError("as it was asked to")
        if how == SLEEP:
            time.sleep(float(amount))
        elif how == SPAWN:
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    os.execvp("sleep", ["sleep", "600"])
                os._exit(0)
            os.wait()
        elif how == DIE:
            os._exit(3)
        else:
            total += float(amount)
        return np.array(total)

    return step


class Kept:
    """A session, and what its sum must be."""

    def __init__(self) -> None:
        self.session = sojourn.open(model)
        self.total: float | None = 0.0  # None: a step has an unknown outcome

    def add(self, amount: float) -> None:
        result = self.session.run("output", {"amount": amount, "how": PLAIN})
        if self.total is not None:
            self.total += amount
            assert result == self.total, f"{result} instead of {self.total}"

    def ask(self, amount: float, how: int, **options: Any) -> Any:
        return self.session.run("output", {"amount": amount, "how": how}, **options)


class Round:
    """Some sessions, used and abused until the last is closed."""

    def __init__(self, seed: str) -> None:
        self.chosen = random.Random(seed)
        self.done: list[str] = []
        self.sessions = 0
        self.faults: list[str] = []
        self.open: list[Kept] = []
        self.others: list[threading.Thread] = []

    def run(self) -> None:
        for _ in range(self.chosen.randrange(1, 4)):
            self.open_one()
        for _ in range(self.chosen.randrange(3, 12)):
            if not self.open:
                self.open_one()
            act = self.chosen.choice(OPERATIONS)
            self.note(act.__name__)
            act(self)
            if act in FAULTS:
                self.faults.append(act.__name__)
        while self.open:
            self.end(self.open.pop())
        for thread in self.others:
            thread.join(60)
            assert not thread.is_alive(), "a thread hangs"

    def note(self, what: str) -> None:
        self.done.append(what)

    def open_one(self) -> None:
        self.note("open")
        self.open.append(Kept())
        self.sessions += 1

    def pick(self) -> Kept:
        return self.chosen.choice(self.open)

    def lose(self) -> Kept:
        """One that will not be there afterwards."""
        kept = self.pick()
        self.open.remove(kept)
        return kept

    def end(self, kept: Kept) -> None:
        how = self.chosen.choice(["close", "close", "with", "threads", "timeout"])
        self.note(f"end by {how}")
        session = kept.session
        if how == "with":
            with contextlib.suppress(ZeroDivisionError), session:
                raise ZeroDivisionError
        elif how == "threads":
            closers = [threading.Thread(target=session.close) for _ in range(3)]
            for closer in closers:
                closer.start()
            for closer in closers:
                closer.join(60)
        else:
            session.close(0.0 if how == "timeout" else None)
        assert session.receipt is not None, f"no receipt after {how}"
        assert session.receipt.clean, str(session.receipt)

    def background(self, call: Callable[[], Any], *expected: type[BaseException]) -> None:
        def run() -> None:
            with contextlib.suppress(*expected):
                call()

        thread = threading.Thread(target=run)
        thread.start()
        self.others.append(thread)


# -- operations: those that are no fault, and those that are ------------------------------------


def step(round: Round) -> None:
    round.pick().add(round.chosen.randrange(1, 9))


def many_steps(round: Round) -> None:
    kept = round.pick()
    for _ in range(round.chosen.randrange(5, 50)):
        kept.add(1)


def large_step(round: Round) -> None:
    size = round.chosen.randrange(1, 200_000)
    with contextlib.suppress(sojourn.EngineError, TypeError, ValueError):
        round.pick().ask(np.ones(size), PLAIN)  # no single number: the model refuses it


def one_more(round: Round) -> None:
    round.open_one()


def close_one(round: Round) -> None:
    round.end(round.lose())


def borrow(round: Round) -> None:
    kept = round.pick()
    with kept.session.lend() as lease:
        assert lease.run("output", {"amount": 0, "how": PLAIN}) == kept.total


def failing_step(round: Round) -> None:
    with contextlib.suppress(ValueError):
        round.pick().ask(1, FAIL)
        raise AssertionError("it did not fail")


def killed_idle(round: Round) -> None:
    kept = round.lose()
    number = round.chosen.choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
    os.kill(kept.session.pid, number)
    with contextlib.suppress(sojourn.SessionBroken):
        for _ in range(10_000):  # the kernel may take its time
            kept.ask(0, PLAIN)
        raise AssertionError("it lives")
    round.end(kept)


def killed_in_a_step(round: Round) -> None:
    kept = round.lose()
    timer = threading.Timer(round.chosen.uniform(0, 0.02), os.kill, (kept.session.pid, 9))
    timer.start()
    with contextlib.suppress(sojourn.SessionBroken):
        while True:
            kept.ask(0.01, round.chosen.choice([PLAIN, SLEEP]))
    timer.join()
    round.end(kept)


def dies_by_itself(round: Round) -> None:
    kept = round.lose()
    with contextlib.suppress(sojourn.SessionBroken):
        kept.ask(1, DIE)
        raise AssertionError("it lives")
    round.end(kept)


def stopped(round: Round) -> None:
    kept = round.pick()
    os.kill(kept.session.pid, signal.SIGSTOP)
    with contextlib.suppress(sojourn.StepTimeout):
        kept.ask(0, PLAIN, timeout=0.02)
    if round.chosen.random() < 0.3:
        round.open.remove(kept)
        round.end(kept)
    else:
        os.kill(kept.session.pid, signal.SIGCONT)
        kept.add(1)


def timed_out(round: Round) -> None:
    with contextlib.suppress(sojourn.StepTimeout):
        round.pick().ask(0.05, SLEEP, timeout=0.01)


def zygote_killed(round: Round) -> None:
    if zygote.pid is not None:
        kill_zygote(zygote.pid)


def zygote_killed_in_a_fork(round: Round) -> None:
    sojourn.warm_up(wait=True)
    timer = threading.Timer(round.chosen.uniform(0, 0.02), kill_zygote, (zygote.pid,))
    timer.start()
    with contextlib.suppress(sojourn.SojournError):
        round.open_one()
    timer.join()


def kill_zygote(pid: int) -> None:
    killed_zygotes.add(pid)
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # a kill takes its time


def interrupted_opening(round: Round) -> None:
    with contextlib.suppress(KeyboardInterrupt), interrupted(round.chosen.randrange(1, 400)):
        round.open_one()
    gc.collect()


def interrupted_step(round: Round) -> None:
    kept = round.pick()
    try:
        with interrupted(round.chosen.randrange(1, 60)):
            kept.ask(0, PLAIN)
    except KeyboardInterrupt:
        pass
    kept.add(1)


def interrupted_close(round: Round) -> None:
    kept = round.lose()
    with contextlib.suppress(KeyboardInterrupt), interrupted(round.chosen.randrange(1, 60)):
        kept.session.close()
    round.end(kept)


def refused_memory(round: Round) -> None:
    with Refusals(lambda: OSError(errno.ENOMEM, "refused")) as refusals:
        for name in ("memfd_create", "ftruncate", "eventfd"):
            refusals.cover(os, name)
        refusals.at(round.chosen.randrange(1, 12))
        with contextlib.suppress(OSError):
            round.open_one()


def closed_in_a_step(round: Round) -> None:
    kept = round.lose()
    round.background(lambda: kept.ask(30, SLEEP), sojourn.SessionClosed)
    time.sleep(0.01)
    kept.session.close(timeout=round.chosen.choice([0.0, 0.01]))


def closed_while_many_run(round: Round) -> None:
    kept = round.lose()

    def run() -> None:
        while True:
            kept.ask(0, PLAIN)

    for _ in range(3):
        round.background(run, sojourn.SessionClosed)
    time.sleep(round.chosen.uniform(0, 0.02))
    round.end(kept)


def forgotten(round: Round) -> None:
    kept = round.lose()
    del kept
    gc.collect()


def left_a_daemon(round: Round) -> None:
    kept = round.lose()
    kept.ask(1, SPAWN)
    if round.chosen.random() < 0.5:
        os.kill(kept.session.pid, signal.SIGKILL)
    round.end(kept)


def forked_client(round: Round) -> None:
    kept = round.pick()
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            try:
                kept.ask(1, PLAIN)
            except sojourn.SessionClosed:
                code = 0
        os._exit(code)
    _, status = os.waitpid(child, 0)
    assert status == 0, "a fork could use the session"
    kept.add(1)


FAULTS = [
    *(failing_step, killed_idle, killed_in_a_step, dies_by_itself, stopped, timed_out),
    *(zygote_killed, zygote_killed_in_a_fork, interrupted_opening, interrupted_step),
    *(interrupted_close, refused_memory, closed_in_a_step, closed_while_many_run, forgotten),
    *(left_a_daemon, forked_client),
]
OTHERS = [step, many_steps, large_step, one_more, close_one, borrow]
OPERATIONS = FAULTS + OTHERS * 2
