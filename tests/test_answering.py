"""Questions of a worker: only where somebody listens, and an end for every thread."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from sojourn.process.callbacks import Answering, Asking
from sojourn.transport import board, lane, server_lane
from sojourn.transport.segment import Segment


class Both:
    """A worker that asks and a client that answers, in one process."""

    def __init__(self) -> None:
        self.memory, fd = Segment.create(board.BYTES)
        os.close(fd)
        self.pidfd = os.pidfd_open(os.getpid())
        self.asking = Asking()
        self.callers: list[lane.CallerLane] = []
        self.answering: Answering | None = None
        self.given_up = threading.Event()

    def open_lane(self) -> server_lane.ServerLane:
        rows = board.rows(self.memory, len(self.callers))
        theirs, ours = socket.socketpair()
        bells = (lane.new_bell(), lane.new_bell())
        caller = lane.CallerLane(len(self.callers), rows, theirs, bells, self.pidfd)
        self.callers.append(caller)
        self.asking.add(caller)
        return server_lane.ServerLane(rows, ours, (os.dup(bells[0]), os.dup(bells[1])))

    def start(self) -> None:
        self.answering = Answering(
            self.open_lane, lambda meta, _: (0, meta[::-1], []), self.given_up.set, "echo"
        )

    def ask(self, meta: bytes) -> bytes:
        return self.asking.ask(meta, [])[1]

    def close(self) -> None:
        if self.answering is not None:
            self.answering.stop()
        os.close(self.pidfd)
        while self.callers:
            self.callers.pop().close()
        del self.asking, self.answering, self.memory  # and with them the shared memory


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Iterator[Both]:
    monkeypatch.setattr(lane, "_ENDING_SECONDS", 0.05)
    both = Both()
    yield both
    both.close()


def refuse_threads(monkeypatch: pytest.MonkeyPatch, after: int) -> list[str]:
    """From the one after these on, no thread can be started."""
    start = threading.Thread.start
    refused: list[str] = []
    left = iter(range(after))

    def scarce(thread: threading.Thread) -> None:
        if next(left, None) is None:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", scarce)
    return refused


def test_where_no_further_thread_starts_the_worker_is_answered_by_those_there_are(
    both, monkeypatch
):
    refused = refuse_threads(monkeypatch, after=1)
    both.start()
    for _ in range(3):
        assert both.ask(b"abc") == b"cba"
    assert refused == ["sojourn-answers-echo"] * 3
    assert len(both.callers) == 1  # the worker never heard of a lane that nobody serves
    both.answering.stop()
    both.answering.stop()
    assert not both.given_up.is_set()


def test_where_the_first_thread_does_not_start_the_worker_hears_of_no_lane(both, monkeypatch):
    with monkeypatch.context() as context:
        refuse_threads(context, after=0)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            both.start()
    assert not both.callers
    both.start()
    assert both.ask(b"abc") == b"cba"


@pytest.mark.parametrize("error", [OSError(24, "too many open files"), KeyboardInterrupt()])
def test_a_lane_that_cannot_be_opened_leaves_no_thread(both, monkeypatch, error):
    def refuse() -> server_lane.ServerLane:
        raise error

    with monkeypatch.context() as context:
        context.setattr(both, "open_lane", refuse)
        with pytest.raises(type(error)):
            both.start()
    both.start()
    assert both.ask(b"abc") == b"cba"


def test_a_worker_whose_lane_was_closed_as_it_was_opened_asks_over_another(both):
    both.start()
    both.open_lane().close()  # as a Ctrl-C does that comes when the worker knows of it already
    assert both.ask(b"abc") == b"cba"
    assert both.ask(b"def") == b"fed"


def test_a_worker_that_nobody_answers_gets_an_error_instead_of_waiting(both):
    for _ in range(2):
        both.open_lane().close()
    with pytest.raises(lane.LaneRefused, match="answers no questions"):
        both.ask(b"abc")
