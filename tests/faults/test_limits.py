"""Memory that runs out: told as an error, and the session goes on where it can."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import models
import sojourn


def test_memory_that_runs_out_while_loading_is_told_and_leaves_nothing():
    def build() -> Any:
        kept = bytearray(2**31)
        return lambda: len(kept)

    with pytest.raises((MemoryError, sojourn.SojournError)):
        sojourn.open(build, memory="256MiB")


def test_memory_that_runs_out_in_a_step_is_the_steps_error():
    def build() -> Any:
        return lambda size: np.ones(int(size), np.uint8).sum()

    with sojourn.open(build, memory="256MiB") as session:
        assert session.run("output", {"size": 1000}) == 1000
        for _ in range(3):
            with pytest.raises((MemoryError, sojourn.EngineError), match="Unable to allocate"):
                session.run("output", {"size": 2**31})
        assert session.run("output", {"size": 1000}) == 1000
    assert session.receipt.clean


# TensorFlow waits for ten seconds before it gives up an allocation.
def test_a_tensor_that_does_not_fit_is_the_steps_error():
    def build() -> Any:
        import tensorflow as tf

        size = tf.compat.v1.placeholder(tf.int32, [], name="size")
        return {"size": size}, {"sum": tf.reduce_sum(tf.ones([size, 2**18]))}

    with sojourn.open(build, memory="256MiB") as session:
        assert session.run("sum", {"size": 4}) == 2**20
        with pytest.raises((sojourn.EngineError, Exception), match=r"(?i)resource|memory|oom"):
            session.run("sum", {"size": 4000})
        assert session.run("sum", {"size": 4}) == 2**20
    assert session.receipt.clean


def test_a_feed_larger_than_the_limit_is_an_error_or_works_and_the_session_goes_on():
    with sojourn.open(models.adder, memory="64MiB") as session:
        big = np.ones(2**24)
        with pytest.raises((MemoryError, OSError, sojourn.SojournError)):
            session.run("output", {"a": big, "b": big})
        assert session.run("output", {"a": 1, "b": 2}) == 3
    assert session.receipt.clean
