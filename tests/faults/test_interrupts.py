"""Ctrl-C, or any exception, wherever the interpreter can raise one: nothing hangs or is left."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys

import pytest

import models
import sojourn
from faults.chances import share
from faults.tools import wait_until
from sojourn.testing import leftovers, take_snapshot
from sojourn.testing.injection import INJECTED, interrupted

SUM = ("output", {"a": 1, "b": 2})
POINTS = 40  # of each phase; the repeats of `make faults` together try them all
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # who is interrupted has forgotten it
    # In a finalizer it is only told of.
    pytest.mark.filterwarnings(f"ignore:(?s).*{INJECTED}:pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def few_modules(monkeypatch):
    """An open looks at each module of the user's: all test files, where all were collected.

    Nearly every point would be in that one loop, and each test would take ten times as long.
    """
    for name in [name for name in sys.modules if name.startswith("test_") and name != __name__]:
        monkeypatch.delitem(sys.modules, name)


def count(act) -> int:
    """How many points there are on the way."""
    with interrupted(0) as where:
        act()
    return len(where)


def session() -> None:
    with sojourn.open(models.adder) as session:
        session.run(*SUM)
        session.run(*SUM)


def lease() -> None:
    with sojourn.open(models.adder) as session, session.lend() as lease:
        lease.run(*SUM)


@sojourn.isolated
def add(a: int, b: int) -> int:
    return a + b


def isolated() -> None:
    assert add(1, 2) == 3


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (session, KeyboardInterrupt),
        (session, RuntimeError),
        (lease, KeyboardInterrupt),
        (isolated, KeyboardInterrupt),
    ],
)
def test_an_interrupt_at_any_point_of_a_session_leaves_nothing(request, act, error):
    act()
    total = count(act)
    before = take_snapshot()
    for n in share(request, total, POINTS):
        where: list[str] = []
        try:
            with interrupted(n, error) as where:
                act()
        except (error, sojourn.SojournError):  # what is no interrupt may be explained
            pass
        left = leftovers(before)
        assert not left, f"point {n} of {total}: {where}: {left}"


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_session_can_be_used_after_an_interrupt_at_any_point_of_a_step(request, error):
    with sojourn.open(models.adder) as session:
        session.run(*SUM)
        total = count(lambda: session.run(*SUM))
        for n in share(request, total, POINTS):
            where: list[str] = []
            try:
                with interrupted(n, error) as where:
                    session.run(*SUM)
            except (error, sojourn.SojournError):  # what is no interrupt may be explained
                pass
            try:
                assert session.run(*SUM, timeout=60) == 3
            except Exception as failure:
                raise AssertionError(f"point {n}: {where}") from failure
    assert session.receipt.clean


def test_a_session_comes_back_after_an_interrupt_at_any_point_of_its_comeback():
    with sojourn.open(models.adder, restart="from-checkpoint") as session:

        def interrupt(n: int) -> list[str]:
            os.kill(session.pid, signal.SIGKILL)
            wait_until(lambda: session._stay.backend.death())
            with contextlib.suppress(KeyboardInterrupt), interrupted(n) as where:
                session.run(*SUM)
            return where

        interrupt(0)
        points = interrupt(0)
        decisive = re.compile("keeping.py|happened_in|came_back|replace_backend")
        for n in [n for n, place in enumerate(points, 1) if decisive.search(place)]:
            where = interrupt(n)
            try:
                assert session.run(*SUM, timeout=60) == 3
            except Exception as failure:
                raise AssertionError(f"point {n}: {where}") from failure
    assert session.receipt.clean


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("name", ["save", "restore", "reset"])
def test_a_session_has_its_state_after_an_interrupt_at_any_point_of(request, tmp_path, name, error):
    path = tmp_path / "saved"
    with sojourn.open(models.counter) as session:
        session.run("store", {"amount": 5.0})
        session.save(path)
        act = getattr(session, name)
        arguments = () if name == "reset" else (path,)
        after = {"save": 6.0, "restore": 5.0, "reset": 0.0}[name]
        total = count(lambda: act(*arguments))
        for n in share(request, total, POINTS // 2):
            where: list[str] = []
            session.run("store", {"amount": 6.0})
            try:
                with interrupted(n, error) as where:
                    act(*arguments)
            except error:
                pass
            try:
                assert session.run("value", timeout=60) in (6.0, after)
                session.restore(path)  # what is there is whole, the old or the new
                assert session.run("value", timeout=60) in (5.0, 6.0)
            except Exception as failure:
                raise AssertionError(f"point {n} of {total}: {where}") from failure
        session.save(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["saved"]
    assert session.receipt.clean
