"""A Ctrl-C at any point of anything that is done with a pool."""

from __future__ import annotations

import threading

import pytest

import models
import pool_interrupts
import sojourn
from sojourn.testing.injection import INJECTED, interrupted

pytestmark = [
    pytest.mark.usefixtures("zygote"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # who is interrupted has forgotten it
    # In a finalizer it is only told of.
    pytest.mark.filterwarnings(f"ignore:(?s).*{INJECTED}:pytest.PytestUnraisableExceptionWarning"),
]


def test_operations_that_are_interrupted_anywhere_leave_the_books_right_and_nothing_hangs():
    # The whole of it: python tests/pool_interrupts.py --operations 10000
    trial = pool_interrupts.run(operations=150, seed=7)
    assert sum("interrupted" in outcome for outcome in trial.outcomes) > 3


def test_a_real_signal_at_any_time_leaves_the_books_right_and_nothing_hangs():
    trial = pool_interrupts.run(operations=60, seed=7, signals=True)
    assert any("interrupted" in outcome for outcome in trial.outcomes)


@pytest.mark.parametrize("model", ["shared", "mine"])
def test_a_lease_that_is_interrupted_at_any_point_is_nobodys(model):
    with sojourn.Pool() as pool:
        pool.register("shared", models.adder)
        pool.register("mine", models.adder, exclusive=True)
        pool.preload()

        def lease() -> None:
            pool.lease(model, timeout=30).close()

        lease()
        with interrupted(0) as points:
            lease()
        for n in range(1, len(points) + 1):
            where: list[str] = []
            try:
                with interrupted(n) as where:
                    lease()
            except KeyboardInterrupt:
                pass
            status = pool.stats()
            assert (status.leased, status.waiting) == (0, 0), f"point {n}: {where}"
    assert not [t for t in threading.enumerate() if t.name.startswith("sojourn-pool")]
