"""What holds after every fault: what `tests/conftest.py` checks after every test, and more."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import models
import sojourn
from sojourn.testing import Watch, leftovers, take_snapshot

SECONDS = 10.0  # until what is left is called so: the machine may be far too busy
GROWTH_BYTES = 5 * 2**20
MATRIX = np.random.default_rng(7).normal(size=(16, 784)).astype(np.float32)


@pytest.fixture(scope="package")
def bystander(zygote: None) -> Iterator[sojourn.Session]:
    """A session that has nothing to do with any fault, and whose bits depend on all it is fed."""
    weights = np.random.default_rng(8).normal(size=(784, 10)).astype(np.float32)

    def build() -> Any:
        import tensorflow as tf

        v1 = tf.compat.v1
        x = v1.placeholder(tf.float32, [None, 784], name="x")
        return {"x": x}, {
            "y": tf.nn.softmax(tf.matmul(x, v1.get_variable("w", initializer=weights)))
        }

    with sojourn.open(build, name="bystander") as session:
        session.run("y", {"x": MATRIX})
        yield session


@pytest.fixture(scope="module", autouse=True)
def loaded(bystander: sojourn.Session) -> None:
    """Whatever is loaded or allocated once, is from now on."""
    open_and_close()


@pytest.fixture(autouse=True)
def nothing_left_behind(
    request: pytest.FixtureRequest, bystander: sojourn.Session
) -> Iterator[None]:
    """Nothing is left, memory has not grown, every transition was legal and told once, others
    compute the same bits, and the next open succeeds."""
    if "tmp_path" in request.fixturenames:
        request.getfixturevalue("tmp_path")
    expected = bystander.run("y", {"x": MATRIX}).tobytes()
    before = take_snapshot()
    with Watch() as watch:
        yield
        left = leftovers(before, seconds=SECONDS, growth_bytes=GROWTH_BYTES)
        assert not left, "; ".join(left)
    wrong = watch.wrong()
    assert not wrong, "; ".join(wrong)
    assert bystander.run("y", {"x": MATRIX}).tobytes() == expected
    open_and_close()


def open_and_close() -> None:
    started = time.monotonic()
    with sojourn.open(models.adder) as session:
        assert session.run("output", {"a": 1, "b": 2}) == 3
    # A second, or ten if the zygote had to be replaced; the machine may be far too busy.
    assert time.monotonic() - started < 60
