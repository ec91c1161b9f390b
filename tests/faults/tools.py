"""Ways to break things, shared by the fault tests."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def wait_until(question: Callable[[], Any], seconds: float = 60.0) -> None:
    """Wait until the answer is yes; fail if it never is."""
    deadline = time.monotonic() + seconds
    while not question():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def press_when(marker: Path, times: int = 1) -> threading.Thread:
    """Press Ctrl-C as soon as the marker is there: a thread that has ended when it is done."""

    def press() -> None:
        while not marker.exists():
            time.sleep(0.005)
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.002)

    thread = threading.Thread(target=press)
    thread.start()
    return thread


def stop(pid: int) -> None:
    """Stop a process, and return once none of its threads runs: each stops by itself, and one that
    has not yet may answer a request."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: _state(pid) == "T")


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that does not run for a while. It may have ended by the time it would go on."""
    try:
        stop(pid)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0]


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        return _state(pid) != "Z"
    except OSError:
        return False


class Background:
    """A call on a thread of its own; `result()` gives what it returned or raised."""

    def __init__(self, call: Callable[..., Any], *args: Any) -> None:
        self._outcome: list[Any] = []
        self._error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, args=(call, args))
        self.thread.start()

    def _run(self, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
        try:
            self._outcome.append(call(*args))
        except BaseException as error:
            self._error = error

    def result(self, seconds: float = 180.0) -> Any:
        self.thread.join(seconds)
        assert not self.thread.is_alive(), "it hangs"
        # It knows the frame that knows us: kept, it would stay until the collector comes by, and
        # with it all that the call had in hand.
        error, self._error = self._error, None
        if error is None:
            return self._outcome[0]
        try:
            raise error
        finally:
            del error
