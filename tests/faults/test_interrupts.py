"""Ctrl-C, or any exception, wherever the interpreter can raise one: nothing hangs or is left."""

from __future__ import annotations

import random

import pytest

import models
import sojourn
from sojourn.testing import leftovers, take_snapshot
from sojourn.testing.injection import INJECTED, interrupted

SUM = ("output", {"a": 1, "b": 2})
SEED = 17
POINTS = 40  # of each phase, chosen by the seed; `make soak` tries them all
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # who is interrupted has forgotten it
    # In a finalizer it is only told of.
    pytest.mark.filterwarnings(f"ignore:(?s).*{INJECTED}:pytest.PytestUnraisableExceptionWarning"),
]


def count(act) -> int:
    """How many points there are on the way."""
    with interrupted(0) as where:
        act()
    return len(where)


def points(total: int, chosen: random.Random) -> list[int]:
    return sorted(chosen.sample(range(1, total), min(POINTS, total - 1)))


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupt_at_any_point_of_a_session_leaves_nothing(error):
    def act() -> None:
        with sojourn.open(models.adder) as session:
            session.run(*SUM)
            session.run(*SUM)

    check(act, error)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_session_can_be_used_after_an_interrupt_at_any_point_of_a_step(error):
    chosen = random.Random(SEED)
    with sojourn.open(models.adder) as session:
        session.run(*SUM)
        total = count(lambda: session.run(*SUM))
        for n in points(total, chosen):
            where: list[str] = []
            try:
                with interrupted(n, error) as where:
                    session.run(*SUM)
            except error:
                pass
            try:
                assert session.run(*SUM, timeout=60) == 3
            except Exception as failure:
                raise AssertionError(f"seed {SEED}, point {n}: {where}") from failure
    assert session.receipt.clean


def check(act, error: type[BaseException]) -> None:
    chosen = random.Random(SEED)
    total = count(act)
    before = take_snapshot()
    for n in points(total, chosen):
        where: list[str] = []
        try:
            with interrupted(n, error) as where:
                act()
        except error:
            pass
        left = leftovers(before)
        assert not left, f"seed {SEED}, point {n} of {total}: {where}: {left}"
