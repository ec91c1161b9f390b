"""Rows that go in together, and whether what comes out is what each request gets alone."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sojourn.service.joining import NoRows, agree, feeds_of, says_something, split
from sojourn.service.signatures import plain
from sojourn.service.targets import Target
from sojourn.values import Signature, TensorSpec
from sojourn.values.rows import Rows

OPEN = TensorSpec("float32", (None, 2))
TARGET = Target(
    plain("serving_default", Signature({"x": OPEN}, {"y": OPEN, "z": OPEN})), ("y", "z")
)


def test_a_single_request_is_fed_as_it_is_and_several_as_rows() -> None:
    one, two = np.ones((1, 2), np.float32), np.ones((3, 2), np.float32)
    assert feeds_of(TARGET, [[one]])["x"] is one
    joined = feeds_of(TARGET, [[one], [two]])["x"]
    assert isinstance(joined, Rows)
    assert joined.shape == (4, 2)


def test_each_gets_as_many_rows_as_it_has_sent() -> None:
    y, z = np.arange(8).reshape(4, 2), np.arange(4)
    first, second = split(TARGET, [y, z], [1, 3])
    assert (first["y"].tolist(), first["z"].tolist()) == ([[0, 1]], [0])
    assert (second["y"].tolist(), second["z"].tolist()) == ([[2, 3], [4, 5], [6, 7]], [1, 2, 3])


@pytest.mark.parametrize("value", [np.arange(3), np.float32(1)])
def test_outputs_of_another_length_have_no_rows(value: Any) -> None:
    with pytest.raises(NoRows):
        split(TARGET, [np.arange(4), value], [1, 3])


@pytest.mark.parametrize(
    ("alone", "joined", "agrees"),
    [
        (np.float32([1, 2]), np.float32([1, 2.0001]), True),
        (np.float32([1, 2]), np.float32([1, 2.1]), False),
        (np.float32([1e-9, 50]), np.float32([2e-9, 50]), True),  # relative to the largest
        (np.float32([math.nan, math.inf]), np.float32([math.nan, math.inf]), True),
        (np.float32([math.nan]), np.float32([0]), False),
        (np.float32([]), np.float32([]), True),
        (np.array([1, 2]), np.array([1, 3]), False),
        (np.array([b"a"], object), np.array([b"a"], object), True),
        (np.array([b"a"], object), np.array([b"b"], object), False),
        (np.array([1, 2], ml_dtypes.bfloat16), np.array([1, 2.01], ml_dtypes.bfloat16), True),
        (np.complex64([1 + 1j]), np.complex64([1 - 1j]), False),
        (np.float32([1]), np.float32([[1]]), False),
    ],
)
def test_answers_agree_but_for_rounding(alone: Any, joined: Any, agrees: bool) -> None:
    assert agree({"y": alone}, {"y": joined}) is agrees


def test_zeros_prove_nothing() -> None:
    assert not says_something([np.zeros(3), np.array([b""], object)])
    assert says_something([np.zeros(3), np.array([b"a"], object)])
    assert says_something([np.array([0, 1], ml_dtypes.bfloat16)])
