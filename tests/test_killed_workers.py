"""Every way for a worker to be killed has words."""

from __future__ import annotations

import os
import signal

import pytest

import models
import sojourn

pytestmark = pytest.mark.usefixtures("zygote")


@pytest.mark.parametrize(
    ("number", "words"),
    [(signal.SIGKILL, "was killed by SIGKILL"), (signal.SIGRTMIN + 2, r"was killed by signal 36")],
)
@pytest.mark.quick
def test_the_signal_that_killed_a_worker_is_named(number, words):
    with sojourn.open(models.adder) as session:
        os.kill(session.pid, number)
        with pytest.raises(sojourn.SessionBroken, match=words):
            session.run("output", {"a": 1, "b": 2})
    assert session.receipt.clean
