"""Memory that runs out: told as an error, and the session goes on where it can."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import models
import sojourn
from faults.mounts import run_with_mounts


def test_memory_that_runs_out_while_loading_is_reported_and_leaves_nothing():
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


# TensorFlow waits for ten seconds before it gives up an allocation, so they wait together.
def test_a_tensor_that_does_not_fit_is_the_steps_error():
    def build() -> Any:
        import tensorflow as tf

        size = tf.compat.v1.placeholder(tf.int32, [], name="mebibytes")
        ones = tf.ones([size, 2**18])
        return {"mebibytes": size}, {"sum": tf.reduce_sum(ones), "most": tf.reduce_max(ones * 2)}

    def stay(limit: int, share: float, is_refused_first: bool) -> sojourn.Receipt | None:
        with sojourn.open(build, memory=f"{limit}MiB") as session:
            if not is_refused_first:
                assert session.run("sum", {"mebibytes": 4}) == 2**20
            with pytest.raises(Exception, match="OOM when allocating tensor"):
                session.run("most", {"mebibytes": int(limit * share)})
            # Enough for each step to be tried on both of TensorFlow's executors.
            for _ in range(16):
                assert session.run("sum", {"mebibytes": 4}) == 2**20
                assert session.run("most", {"mebibytes": 4}) == 2
            assert session.run("sum", {"mebibytes": limit // 4}) == limit // 4 * 2**18
        return session.receipt

    limits = (64, 96, 128, 256, 512)
    shares = (1.5, 20)  # too large, and far too large
    stays = list(itertools.product(limits, shares, (True, False)))
    with ThreadPoolExecutor(len(stays)) as threads:
        receipts = list(threads.map(lambda arguments: stay(*arguments), stays))
    assert len(receipts) == 20
    assert all(receipt is not None and receipt.clean for receipt in receipts)


def test_a_limit_that_is_nearly_nothing_still_leaves_a_session_room_to_run():
    with sojourn.open(models.softmax_regression, memory="1MiB") as session:
        assert session.run(None, {"x": np.zeros((1, 784), np.float32)})
    assert session.receipt.clean


def test_a_feed_larger_than_the_limit_is_an_error_or_works_and_the_session_goes_on():
    with sojourn.open(models.adder, memory="64MiB") as session:
        big = np.ones(2**24)
        with pytest.raises((MemoryError, OSError, sojourn.SojournError)):
            session.run("output", {"a": big, "b": big})
        assert session.run("output", {"a": 1, "b": 2}) == 3
    assert session.receipt.clean


def test_a_system_without_proc_is_a_typed_error_and_inline_sessions_work():
    code = """
mount("tmpfs", "/proc", "tmpfs")
try:
    sojourn.open(models.adder)
except sojourn.PlatformError as error:
    tell(error)
with sojourn.open(models.adder, isolation="inline") as session:
    tell(session.run(*SUM))
libc.umount2(b"/proc", 2)
"""
    assert run_with_mounts(code) == ["process isolation needs /proc, missing here", "3"]
