"""What is chosen at random: the same in a single run, and other choices in each of many repeats."""

from __future__ import annotations

import random

import pytest

SEED = 17


def seed_of(request: pytest.FixtureRequest) -> int:
    """The seed of this test; a failure should tell it."""
    callspec = getattr(request.node, "callspec", None)
    return SEED + (callspec.params.get("repeat", 1) - 1 if callspec else 0)


def share(request: pytest.FixtureRequest, total: int, most: int) -> list[int]:
    """Some of the numbers from 1 to `total`: `most` of them, or with repeats a share of each, so
    that the repeats together try them all."""
    numbers = list(range(1, total + 1))
    random.Random(SEED).shuffle(numbers)
    repeats = request.config.getoption("--repeats")
    if repeats == 1:
        return sorted(numbers[:most])
    return sorted(numbers[seed_of(request) - SEED :: repeats])
