"""What holds after every fault, besides what `tests/conftest.py` checks after every test."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

import models
import sojourn
from sojourn.testing import leftovers, take_snapshot

GROWTH_BYTES = 5 * 2**20


def matrix() -> np.ndarray:
    return np.random.default_rng(7).normal(size=(16, 784)).astype(np.float32)


@pytest.fixture(scope="package")
def bystander(zygote: None) -> Iterator[sojourn.Session]:
    """A session that has nothing to do with any fault."""
    with sojourn.open(models.softmax_regression, name="bystander") as session:
        session.run("y", {"x": matrix()})
        yield session


@pytest.fixture(autouse=True)
def invariants(
    request: pytest.FixtureRequest, bystander: sojourn.Session, nothing_left_behind: None
) -> Iterator[None]:
    """Others compute the same bits, memory has not grown, and the next open succeeds."""
    expected = bystander.run("y", {"x": matrix()}).tobytes()
    open_and_close()  # whatever is loaded or allocated once, is now
    before = take_snapshot()
    yield
    grows = request.node.get_closest_marker("memory_grows") is not None
    left = leftovers(before, growth_bytes=None if grows else GROWTH_BYTES)
    assert not left, "; ".join(left)
    assert bystander.run("y", {"x": matrix()}).tobytes() == expected
    open_and_close()


def open_and_close() -> None:
    started = time.monotonic()
    with sojourn.open(models.adder) as session:
        assert session.run("output", {"a": 1, "b": 2}) == 3
    # A second, or ten if the zygote had to be replaced; the machine may be far too busy.
    assert time.monotonic() - started < 60
