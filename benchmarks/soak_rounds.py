"""What a round of `soak.py` is: sessions, used and abused until the last of them is closed.

A round leaves nothing, and its sessions have counted right; `soak_invariants.py` checks whatever
else must hold after it. The operations that can occur in a round are in the files next to this one,
by theme.
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

# Plain functions; TensorFlow graphs; graphs that are built, or even run, in the client.
FUNCTIONS, GRAPHS, LIVE = "functions", "graphs", "live"
EVERY = {GRAPHS: 9, LIVE: 40}  # one in so many rounds: FUNCTIONS needs no TensorFlow, so is faster
EACH_IN_TURN = {GRAPHS: 0, FUNCTIONS: 1, LIVE: 20}  # the round of a kind with every operation
MOST_UNKNOWN = 20  # unknown steps of one session: the number of digits that a sum can hold
RARE = 0.2  # the weight of operations that take seconds
SECONDS = 60.0  # until an event that should happen counts as missing

# Returns True if a fault took place: an interrupt, for example, may come too late to be one.
Operation = Callable[["Round"], bool | None]
operations: dict[str, dict[Operation, float]] = {FUNCTIONS: {}, GRAPHS: {}, LIVE: {}}
killed_zygotes: set[int] = set()


def kind_of(number: int) -> str:
    """Return which kind of round this is."""
    for kind in (LIVE, GRAPHS):
        if number % EVERY[kind] == EACH_IN_TURN[kind]:
            return kind
    return FUNCTIONS


def happens(*kinds: str, weight: float = 1.0) -> Callable[[Operation], Operation]:
    """Register an operation for rounds of these kinds (or all), with its weight."""

    def register(operation: Operation) -> Operation:
        for kind in kinds or operations:
            operations[kind][operation] = weight
        return operation

    return register


class Kept:
    """A session, and what its sum must be.

    A step of unknown outcome adds a power of four of its own, so the sum tells which of these steps
    took place, and that none took place twice.
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
        """Check that the sum is the certain amounts plus any of the unknown ones, each once."""
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
        """Run a step that may not finish."""
        amount = 0.25 ** (len(self._unknown) + 1)
        self._unknown.append(amount)
        self.ask(amount, PLAIN, **options)

    @property
    def can_attempt(self) -> bool:
        return len(self._unknown) < MOST_UNKNOWN


class KeptGraph(Kept):
    """The same sum in TensorFlow."""

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
        """A folder for files, removed with the round."""
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="round-")
        return self._folder

    def path(self) -> str:
        """Return a path for a file that does not exist yet."""
        return os.path.join(self.folder, f"{self.chosen.getrandbits(64):x}")

    def new(self, **options: Any) -> Kept:
        """Open a session of this round's kind, which the caller must end."""
        self.sessions += 1
        return (Kept if self.kind == FUNCTIONS else KeptGraph)(**options)

    def open_one(self) -> None:
        self.note("open")
        self.open.append(self.new())

    def pick(self) -> Kept:
        return self.chosen.choice(self.open)

    def lose(self) -> Kept:
        """Remove and return a session that the operation will end."""
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
        """Call something during the block, after up to 20 ms, the time to open a session."""
        timer = threading.Timer(self.chosen.uniform(0, 0.02), call, arguments)
        timer.start()
        try:
            yield
        finally:
            timer.join()


@contextlib.contextmanager
def refused(*expected: type[BaseException]) -> Iterator[None]:
    """Assert that the block raises one of these errors."""
    with contextlib.suppress(*expected):
        yield
        raise AssertionError(f"it did not raise {', '.join(e.__name__ for e in expected)}")


def failures() -> tuple[type[BaseException], ...]:
    """Return the errors that an impossible step raises, whichever part refuses it."""
    if "tensorflow" not in sys.modules:
        return ValueError, sojourn.EngineError
    return ValueError, sojourn.EngineError, sys.modules["tensorflow"].errors.OpError


def wait_until(question: Callable[[], Any]) -> None:
    """Wait for an event in another thread or process."""
    deadline = time.monotonic() + SECONDS
    while not question():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.001)


def kill_zygote(pid: int) -> None:
    killed_zygotes.add(pid)
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # a kill takes effect a moment later


def zygote_pid() -> int:
    """Return the pid of a zygote that is ready."""
    sojourn.warm_up(wait=True)
    assert zygote.pid is not None
    return zygote.pid
