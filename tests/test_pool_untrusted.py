"""A pool with a model that nobody vouches for."""

from __future__ import annotations

import os

import numpy as np
import pytest

import sojourn
from sojourn import events

pytestmark = pytest.mark.usefixtures("zygote")


@sojourn.isolated
def write_counter(folder: str) -> None:
    import tensorflow as tf

    class Counter(tf.Module):
        def __init__(self) -> None:
            self.total = tf.Variable(0.0)

        @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
        def add(self, amount):
            return {"total": self.total.assign_add(amount)}

    counter = Counter()
    tf.saved_model.save(counter, folder, signatures=counter.add)


def test_an_untrusted_model_that_has_changed_can_be_replaced_and_starts_anew(tmp_path):
    folder = str(tmp_path / "counter")
    write_counter(folder)
    os.symlink("nowhere", tmp_path / "counter" / "dangling")
    heard = []
    unsubscribe = events.subscribe(lambda event: heard.append(event.kind))
    try:
        with sojourn.Pool(memory="8GiB", max_sessions=1) as pool:
            pool.register("counter", folder, untrusted=True, max_runs=2)
            pool.register("other", lambda: lambda x: x)
            totals = []
            for _ in range(3):
                with pool.lease("counter", timeout=60) as session:
                    totals.append(float(session.run("total", {"amount": np.float32(1)})))
            with pool.lease("other", timeout=60) as session:
                session.run("output", {"x": 1})
    finally:
        unsubscribe()
    assert totals == [1.0, 2.0, 1.0]
    assert heard.count("pool.state_lost") == 2
    assert "pool.park_failed" not in heard
