"""What a round of `soak.py` is: sessions, used and abused until the last of them is closed.

A round leaves nothing, and its sessions have counted right; whatever else must hold after it is
checked by who runs it. What can happen in one is in the files beside this, by theme.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import soak_models
from soak_models import ECHO, MANY, PLAIN

import sojourn
from sojourn.process.zygote import zygote

# Plain functions; graphs of TensorFlow's; graphs that are built, or even run, in the client.
FUNCTIONS, GRAPHS, LIVE = "functions", "graphs", "live"
EVERY = {GRAPHS: 9, LIVE: 40}  # rounds: the others need no TensorFlow, and are many times faster
EACH_IN_TURN = {GRAPHS: 0, FUNCTIONS: 1, LIVE: 20}  # this round of a kind does whatever there is
MOST_UNKNOWN = 20  # steps of one session: as many as a sum has digits for
RARE = 0.2  # the weight of what takes seconds
SECONDS = 60.0  # until something that should happen is said not to

# True if it was a fault that took place: an interrupt may come too late to be one.
Operation = Callable[["Round"], bool | None]
operations: dict[str, dict[Operation, float]] = {FUNCTIONS: {}, GRAPHS: {}, LIVE: {}}
killed_zygotes: set[int] = set()


def kind_of(number: int) -> str:
    """Which kind of round this is."""
    for kind in (LIVE, GRAPHS):
        if number % EVERY[kind] == EACH_IN_TURN[kind]:
            return kind
    return FUNCTIONS


def happens(*kinds: str, weight: float = 1.0) -> Callable[[Operation], Operation]:
    """In rounds of these kinds (or all) this may happen, the more often the more weight it has."""

    def register(operation: Operation) -> Operation:
        for kind in kinds or operations:
            operations[kind][operation] = weight
        return operation

    return register


class Kept:
    """A session, and what its sum must be.

    A step of unknown outcome asks for a power of four of its own: so the sum tells which of them
    took place, and that none did twice.
    """

    model = staticmethod(soak_models.function)

    def __init__(self, **options: Any) -> None:
        self.session = sojourn.open(self.model, **options)
        self.total = 0.0
        self.landed: set[float] = set()
        self._unknown: list[float] = []

    def ask(self, amount: Any, how: int, **options: Any) -> Any:
        return self.session.run("output", {"amount": amount, "how": how}, **options)

    def many(self, size: int) -> Any:
        return self.ask(size, MANY)

    def same(self, words: Any) -> Any:
        return self.ask(words, ECHO)

    def add(self, amount: float) -> None:
        result = self.ask(amount, PLAIN)
        self.total += amount
        self.check(result)

    def check(self, result: Any) -> None:
        """The sum is what was added for certain, and any of the unknown, once."""
        rest = float(result) - self.total
        landed = set()
        for amount in self._unknown:
            if rest >= amount:
                rest -= amount
                landed.add(amount)
        assert rest == 0, f"{result} instead of {self.total} with any of {self._unknown}"
        assert landed >= self.landed, f"{result}: {self.landed - landed} were there before"
        self.landed = landed

    def attempt(self, **options: Any) -> None:
        """A step that may not get to its end."""
        amount = 0.25 ** (len(self._unknown) + 1)
        self._unknown.append(amount)
        self.ask(amount, PLAIN, **options)

    @property
    def can_attempt(self) -> bool:
        return len(self._unknown) < MOST_UNKNOWN


class KeptGraph(Kept):
    """The same in TensorFlow."""

    model = staticmethod(soak_models.graph)

    def ask(self, amount: Any, how: int, **options: Any) -> Any:
        if how == PLAIN:
            return self.session.run("total", {"amount": amount}, **options)
        return super().ask(amount, how, **options)

    def many(self, size: int) -> Any:
        return self.session.run("many", {"amount": size})

    def same(self, words: Any) -> Any:
        return self.session.run("same", {"words": words})


class Round:
    """Some sessions, and what happens to them. Everything follows from the seed."""

    def __init__(self, seed: int, number: int) -> None:
        self.chosen = random.Random(f"{seed}:{number}")
        self.kind = kind_of(number)
        self.number = number
        self.done: list[str] = []
        self.sessions = 0
        self.faults: list[str] = []
        self.open: list[Kept] = []
        self.others: list[threading.Thread] = []
        self._folder: str | None = None

    def run(self) -> None:
        try:
            for _ in range(self.chosen.randrange(1, 4)):
                self.open_one()
            for operation in self._operations():
                if not self.open:
                    self.open_one()
                self.note(operation.__name__)
                if operation(self):
                    self.faults.append(operation.__name__)
            while self.open:
                self.end(self.open.pop())
            for thread in self.others:
                thread.join(SECONDS)
                assert not thread.is_alive(), "a thread hangs"
        finally:
            if self._folder is not None:
                shutil.rmtree(self._folder)

    def _operations(self) -> list[Operation]:
        known = operations[self.kind]
        if self.number == EACH_IN_TURN[self.kind]:
            return [operation for operation, weight in known.items() if weight > RARE]
        count = self.chosen.randrange(3, 12)
        return self.chosen.choices(list(known), list(known.values()), k=count)

    def note(self, what: str) -> None:
        self.done.append(what)

    @property
    def folder(self) -> str:
        """For files; gone with the round."""
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="round-")
        return self._folder

    def path(self) -> str:
        """For a file that is not there yet."""
        return os.path.join(self.folder, f"{self.chosen.getrandbits(64):x}")

    def new(self, **options: Any) -> Kept:
        """A session of this round's kind that who asks for it ends."""
        self.sessions += 1
        return (Kept if self.kind == FUNCTIONS else KeptGraph)(**options)

    def open_one(self) -> None:
        self.note("open")
        self.open.append(self.new())

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
                closer.join(SECONDS)
        else:
            session.close(timeout=0.0 if how == "timeout" else None)
        assert session.receipt is not None, f"no receipt after {how}"
        assert session.receipt.clean, str(session.receipt)

    def background(self, call: Callable[[], Any], *expected: type[BaseException]) -> None:
        def run() -> None:
            with contextlib.suppress(*expected):
                call()

        thread = threading.Thread(target=run)
        thread.start()
        self.others.append(thread)

    @contextlib.contextmanager
    def meanwhile(self, call: Callable[..., Any], *arguments: Any) -> Iterator[None]:
        """Something that is done to the block, after a time in which a session is opened."""
        timer = threading.Timer(self.chosen.uniform(0, 0.02), call, arguments)
        timer.start()
        try:
            yield
        finally:
            timer.join()


@contextlib.contextmanager
def refused(*expected: type[BaseException]) -> Iterator[None]:
    """A block that must not succeed."""
    with contextlib.suppress(*expected):
        yield
        raise AssertionError(f"it did not raise {', '.join(e.__name__ for e in expected)}")


def failures() -> tuple[type[BaseException], ...]:
    """What a step raises that cannot be done, whoever refuses it."""
    if "tensorflow" not in sys.modules:
        return ValueError, sojourn.EngineError
    return ValueError, sojourn.EngineError, sys.modules["tensorflow"].errors.OpError


def wait_until(question: Callable[[], Any]) -> None:
    """Wait for something that happens beside us."""
    deadline = time.monotonic() + SECONDS
    while not question():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.001)


def kill_zygote(pid: int) -> None:
    killed_zygotes.add(pid)
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # a kill takes its time


def zygote_pid() -> int:
    """Of one that is ready."""
    sojourn.warm_up(wait=True)
    assert zygote.pid is not None
    return zygote.pid
