"""Work that a signal must not stop halfway, whatever its handler raises."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sojourn.process.interrupts import to_the_end


class Alarmed(Exception):
    """What a program's own handler raises."""


@pytest.fixture
def handler() -> Iterator[Callable[[BaseException], None]]:
    """Have SIGUSR1 raise this."""
    before = signal.getsignal(signal.SIGUSR1)

    def install(error: BaseException) -> None:
        def handle(*_: Any) -> None:
            raise error

        signal.signal(signal.SIGUSR1, handle)

    yield install
    signal.signal(signal.SIGUSR1, before)


def signal_us() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)


class Work:
    """Sends a signal to the main thread and goes on until it has been hurried that often."""

    def __init__(self, signals: int = 1, error: BaseException | None = None) -> None:
        self.hurried = 0
        self.is_done = False
        self._signals = signals
        self._error = error

    def __call__(self) -> None:
        assert threading.current_thread() is not threading.main_thread()
        for count in range(1, self._signals + 1):
            signal_us()
            while self.hurried < count:
                time.sleep(0.001)
        self.is_done = True
        if self._error is not None:
            raise self._error

    def hurry(self) -> None:
        self.hurried += 1


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(3), Alarmed()], ids=["ctrl-c", "exit", "own"]
)
def test_what_a_handler_raises_waits_until_the_work_is_done(handler, error):
    handler(error)
    work = Work(signals=3)
    with pytest.raises(type(error)) as raised:
        to_the_end(work, work.hurry)
    assert raised.value is error
    assert work.is_done
    assert work.hurried == 3


def test_a_failure_of_the_work_is_reported_beside_what_a_handler_raised(handler):
    handler(SystemExit(3))
    failure = OSError("the disk is full")
    work = Work(error=failure)
    with pytest.raises(SystemExit) as raised:
        to_the_end(work, work.hurry)
    assert raised.value.__context__ is failure


def test_a_failure_alone_is_raised(handler):
    work = Work(signals=0, error=OSError("the disk is full"))
    with pytest.raises(OSError, match="disk is full"):
        to_the_end(work, work.hurry)


def test_hurrying_that_fails_does_not_end_the_wait(handler):
    handler(Alarmed())
    work = Work(signals=2)

    def hurry() -> None:
        work.hurry()
        raise ProcessLookupError

    with pytest.raises(Alarmed):
        to_the_end(work, hurry)
    assert work.is_done


@pytest.mark.parametrize("error", [Alarmed(), RuntimeError("time is up")])
def test_a_signal_while_the_thread_starts_does_not_do_the_work_twice(handler, monkeypatch, error):
    handler(error)
    done: list[str] = []
    start = threading.Thread.start
    signals = [signal_us]

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if signals:
            signals.pop()()

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(type(error)):
        to_the_end(lambda: done.append("once"), lambda: None)
    assert done == ["once"]


def test_where_no_thread_starts_the_work_is_done_here(monkeypatch):
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done: list[threading.Thread] = []
    to_the_end(lambda: done.append(threading.current_thread()), lambda: None)
    assert done == [threading.main_thread()]
