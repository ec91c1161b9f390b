"""A worker that is stopped: whoever has a timeout keeps it, and nobody else notices."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

import numpy as np
import pytest

import models
import sojourn
from faults.tools import Background, stopped, wait_until
from sojourn import State
from sojourn.transport import board

SUM = ("output", {"a": 1, "b": 2})


@contextlib.contextmanager
def soon() -> Iterator[None]:
    """What has a tenth of a second, or two, and the second's grace of a close, takes no longer;
    but the machine may be far too busy."""
    started = time.monotonic()
    yield
    assert time.monotonic() - started < 5


def test_a_timeout_holds_while_the_worker_is_stopped_and_it_goes_on_afterwards():
    with sojourn.open(models.adder) as session, sojourn.open(models.adder) as sibling:
        session.run(*SUM)
        with stopped(session.pid):
            for _ in range(3):
                with soon(), pytest.raises(sojourn.StepTimeout, match="outcome is unknown"):
                    session.run(*SUM, timeout=0.1)
            assert sibling.run(*SUM) == 3
            with sojourn.open(models.adder) as later:
                assert later.run(*SUM) == 3
        assert session.run(*SUM) == 3
    assert session.receipt.clean


def test_a_late_answer_that_nobody_waited_for_confuses_nothing():
    with sojourn.open(models.adder) as session:
        for size in (1, 3, 200_000, 2):
            ones = np.ones(size)
            with stopped(session.pid), soon(), pytest.raises(sojourn.StepTimeout):
                session.run("output", {"a": ones, "b": ones}, timeout=0.05)
            for _ in range(3):
                assert session.run("output", {"a": ones, "b": ones}).sum() == 2 * size
            time.sleep(0.05)  # until the late answer is there, and its lane is used again


def test_a_timeout_holds_while_another_thread_prepares_the_same_step():
    with sojourn.open(models.adder) as session, stopped(session.pid):
        first = Background(session.run, *SUM)
        wait_until(lambda: session.state is State.RUNNING)
        with soon(), pytest.raises(sojourn.StepTimeout):
            session.run(*SUM, timeout=0.2)
        os.kill(session.pid, signal.SIGCONT)
        assert first.result() == 3


def test_a_timeout_holds_while_the_state_is_being_saved(tmp_path):
    with sojourn.open(models.counter) as session:
        session.run("total", {"amount": 1.0})
        with stopped(session.pid):
            saving = Background(session.save, tmp_path / "saved")
            wait_until(lambda: session._stay.lifecycle._alone)
            with soon(), pytest.raises(sojourn.StepTimeout, match="this step has not begun"):
                session.run("value", timeout=0.2)
        saving.result()
        assert session.run("value") == 1.0


def test_a_stopped_worker_can_be_closed():
    session = sojourn.open(models.adder)
    with stopped(session.pid), soon():
        assert session.close().clean
    assert not os.path.exists(f"/proc/{session.pid}")


def test_a_step_in_a_stopped_worker_is_cut_off_by_the_close():
    session = sojourn.open(models.adder)
    session.run(*SUM)
    with stopped(session.pid):
        running = Background(session.run, *SUM)
        wait_until(lambda: session.state is State.RUNNING)
        time.sleep(0.5)  # and it has been sent
        with soon():
            assert session.close(timeout=0.1).clean
        with pytest.raises(sojourn.SessionClosed, match="has not begun"):
            running.result()


def test_a_closer_with_less_patience_ends_the_wait_of_one_with_more():
    session = sojourn.open(models.sleeper)
    running = Background(session.run, "output", {"seconds": 60})
    wait_until(lambda: session.state is State.RUNNING)
    patient = Background(session.close)
    wait_until(lambda: session.state is State.DRAINING)
    with soon():
        receipt = session.close(timeout=0.1)
    assert patient.result() is receipt
    with pytest.raises(sojourn.SessionClosed):
        running.result()


def test_when_every_lane_is_taken_a_worker_that_dies_is_still_noticed():
    with sojourn.open(models.adder) as session:
        session.run(*SUM)
        with stopped(session.pid):
            for _ in range(board.LANES + 2):
                with pytest.raises(sojourn.StepTimeout):
                    session.run(*SUM, timeout=0.001)
            with pytest.raises(sojourn.StepTimeout, match="has not begun"):
                session.run(*SUM, timeout=0.001)  # there was no lane to send it over
            waiting = Background(session.run, *SUM)
            wait_until(lambda: session.state is State.RUNNING)
            os.kill(session.pid, signal.SIGKILL)
            with pytest.raises(sojourn.SessionBroken):
                waiting.result()
    assert session.receipt.clean
