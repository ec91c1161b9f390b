"""Interrupt many operations on a pool at random points: nothing hangs, and its accounts are right.

    python tests/pool_interrupts.py [--operations 10000] [--seed 1] [--signals]

An operation is interrupted at one of the points where the interpreter could answer a signal in
sojourn's code, or, with `--signals`, by a real Ctrl-C at a random time. After each operation, no
lease may be held and no request may wait. Every hundred operations, and at the end, the pool's
accounts are compared with the worker processes that exist. The program prints what it has done, and
exits with 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gc
import random
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator

import psutil

import sojourn
from sojourn.testing.injection import interrupted

SUM = ("output", {"a": 1, "b": 2})
HANG_SECONDS = 60


def adder():
    return lambda a, b: a + b


def wait_for(what: str, condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: never")
        time.sleep(0.002)


def workers() -> set[int]:
    """Return the worker processes that the zygotes of this process have forked and that exist."""
    found = set()
    for zygote in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in zygote.children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    if child.status() != psutil.STATUS_ZOMBIE:
                        found.add(child.pid)
    return found


@contextlib.contextmanager
def signalled(seconds: float) -> Iterator[list[str]]:
    """Send this thread a real Ctrl-C after so many seconds, unless the block ends before."""
    me = threading.get_ident()
    where: list[str] = []
    is_over = threading.Event()

    def send() -> None:
        if not is_over.wait(seconds):
            where.append("a signal")
            signal.pthread_kill(me, signal.SIGINT)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield where
    finally:
        while sender.is_alive():
            with contextlib.suppress(KeyboardInterrupt):
                is_over.set()
                sender.join()


class Trial:
    """One pool, and the operations on it."""

    def __init__(self, pool: sojourn.Pool, rng: random.Random) -> None:
        self.pool = pool
        self.rng = rng
        self.serial = 0
        self.outcomes: Counter[str] = Counter()

    def use(self, name: str) -> None:
        with self.pool.lease(name, timeout=30) as session:
            assert session.run(*SUM) == 3

    def hold_two(self, name: str) -> None:
        with self.pool.lease("shared", timeout=30), self.pool.lease(name, timeout=30):
            pass

    def time_out(self, name: str) -> None:
        with contextlib.suppress(sojourn.PoolTimeout, sojourn.BudgetExceeded):
            self.pool.lease(name, timeout=0).close()

    def forget(self, name: str) -> None:
        self.pool.lease(name, timeout=30)

    def preload(self, name: str) -> None:
        self.pool.preload(name, timeout=30)

    def evict(self, name: str) -> None:
        self.pool.evict(name, timeout=30)

    def look(self, name: str) -> None:
        assert name in str(self.pool.stats().to_dict())

    def replace(self, name: str) -> None:
        self.serial += 1
        brief = f"brief-{self.serial}"
        self.pool.register(brief, adder)
        self.pool.lease(brief, timeout=30).close()
        self.pool.unregister(brief, timeout=30)

    def update(self, name: str) -> None:
        self.pool.update("shared", adder)

    def operate(self, interrupt: Callable[[], contextlib.AbstractContextManager[list[str]]]) -> str:
        """Run one operation under an interrupt; say what happened, and where it was interrupted."""
        acts = [self.use] * 12 + [self.hold_two] * 3 + [self.time_out] * 2 + [self.forget] * 2
        acts += [self.preload, self.look, self.look]
        if self.rng.random() < 0.1:
            acts += [self.evict, self.replace, self.update] * 4
        act = self.rng.choice(acts)
        name = self.rng.choice(["shared", "shared", "mine", "many"])
        where: list[str] = []
        try:
            with interrupt() as where:
                act(name)
            outcome = "done"
        except KeyboardInterrupt:
            outcome = "interrupted"
        except sojourn.SojournError as error:
            outcome = type(error).__name__
        self.outcomes[f"{act.__name__}: {outcome}"] += 1
        return f"{act.__name__}({name}) {outcome} at {where}"

    def check(self) -> None:
        """Check that no lease is held and no request waits."""
        status = self.pool.stats()
        if status.leased or status.waiting:
            gc.collect()
            wait_for("nothing is held", lambda: not self._is_busy(), 10)

    def _is_busy(self) -> bool:
        status = self.pool.stats()
        return bool(status.leased or status.waiting)

    def compare(self) -> None:
        """Check that the pool's accounts agree with the worker processes."""

        def agree() -> bool:
            status = self.pool.stats()
            if status.opening or status.leaving:
                return False
            residents = {r.stay.pid for r in self.pool._driver.residents.values()}
            return len(residents) == len(status.copies) and residents == workers()

        wait_for("books and workers agree", agree)


def run(operations: int, seed: int, signals: bool = False) -> Trial:
    rng = random.Random(seed)
    with sojourn.Pool(memory="2GiB") as pool:
        pool.register("shared", adder)
        pool.register("mine", adder, exclusive=True)
        pool.register("many", adder, copies=2)
        trial = Trial(pool, rng)
        for number in range(operations):
            if number % 10 == 0:
                faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)

            def interrupt() -> contextlib.AbstractContextManager[list[str]]:
                if signals:
                    return signalled(rng.expovariate(1 / 0.0005))
                return interrupted(int(rng.expovariate(1 / 60)) + 1)

            said = ""
            try:
                said = trial.operate(interrupt)
                trial.check()
                if number % 100 == 99:
                    trial.compare()
            except Exception as error:
                raise AssertionError(f"operation {number} (seed {seed}): {said}") from error
        trial.compare()
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
    faulthandler.cancel_dump_traceback_later()
    wait_for("every worker has gone", lambda: not workers())
    return trial


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--signals", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ResourceWarning)  # an interrupted operation may forget a lease
    sys.unraisablehook = lambda _: None  # an interrupt in a finalizer is only reported, not raised
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sojourn.warm_up(wait=True)
    started = time.monotonic()
    trial = run(options.operations, options.seed, options.signals)
    seconds = time.monotonic() - started
    for outcome, count in sorted(trial.outcomes.items()):
        print(f"{count:6} {outcome}")
    print(f"{options.operations} operations in {seconds:.0f} s, the books were right all along")


if __name__ == "__main__":
    main()
