"""Lists of numbers in JSON bodies: the quick reader says what the slow one would, or nothing."""

from __future__ import annotations

import json
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn.service.failures import Refused
from sojourn.service.http import json_arrays
from sojourn.service.http.json_numbers import fractions, in_few_digits

_numbers = st.floats(allow_nan=False, allow_infinity=False, width=32) | st.integers(-(2**70), 2**70)
_oddities = st.booleans() | st.none() | st.text(max_size=3) | st.just({"b64": "AA=="})
_values = st.recursive(
    _numbers | _oddities, lambda inner: st.lists(inner, max_size=4), max_leaves=20
)
_rows = st.integers(0, 4).flatmap(
    lambda width: st.lists(st.lists(_numbers, min_size=width, max_size=width), max_size=4)
)


@settings(max_examples=300, deadline=None)
@given(_values | _rows | st.lists(_numbers), st.sampled_from([1, 2, 3, 4]))
def test_what_is_read_quickly_is_what_was_written(values: Any, rank: int) -> None:
    text = json.dumps(values).encode()
    array = fractions(text, np.dtype(np.float32), rank)
    if array is None:
        return
    assert array.ndim == rank
    expected = json_arrays.as_array(values, np.dtype(np.float32), "x")
    assert array.shape == expected.shape
    np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_plain_lists_are_read_quickly(rank: int) -> None:
    made = np.arange(24, dtype=np.float64).reshape(
        {1: (24,), 2: (2, 12), 3: (2, 3, 4), 4: (2, 3, 2, 2)}[rank]
    )
    array = fractions(json.dumps(made.tolist()).encode(), np.dtype(np.float64), rank)
    assert array is not None
    np.testing.assert_array_equal(array, made)


def test_lists_that_look_vast_from_their_first_elements_take_no_memory() -> None:
    text = b"[]"
    for _ in range(3):
        text = b"[" + text + b",[]" * 2000 + b"]"
    tracemalloc.start()
    try:
        assert fractions(text, np.dtype(np.float32), 4) is None
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "text",
    [
        b"", b"[", b"[1", b"[1]x", b"[NaN]", b"[1e400]", b"[1e39]", b"[[1],[2,3]]", b"[[1],2]",
        b"[[1,[2]],[3]]", b"[[[1,2],[3]],[[4],[5,6]]]", b"[[[1],[2]],[[3,4]]]", b"[[[1]],[[]]]",
        b"[[[1,2]],[[3]],[[4]]]", b"[true]", b"[null]", b'["["]', b"{}", b"3", b"[\xff]", b"[01]",
        b"[" * 5000,
    ],
)  # fmt: skip
def test_what_is_no_plain_list_is_left_to_the_slow_reader(text: bytes) -> None:
    for rank in (1, 2, 3, 4):
        assert fractions(text, np.dtype(np.float32), rank) is None


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([2**64 - 1, 0], "uint64"),
        ([[2**64 - 1], [2**63]], "uint64"),
        (2**64 - 1, "uint64"),
        ([10**20, 1.5], "float32"),
        ([-(10**20), math.inf], "float64"),
    ],
)
def test_large_integers_are_numbers_like_others(values: Any, dtype: str) -> None:
    array = json_arrays.as_array(values, np.dtype(dtype), "x")
    assert array.dtype == dtype
    assert array.tolist() == np.array(values, dtype).tolist()


@pytest.mark.parametrize(
    ("values", "dtype", "why"),
    [
        ([2**64], "uint64", "a number does not fit into uint64"),
        ([-1, 2**64 - 1], "uint64", "a number does not fit into uint64"),
        ([-1, 2**63], "int64", "a number does not fit into int64"),
        ([256], "uint8", "a number does not fit into uint8"),
        ([10**400], "float64", "a number does not fit into float64"),
        ([10**20], "float16", "a number does not fit into float16"),
        ([None, 10**20], "float32", "mixed or ragged values where float32"),
        ([True, 10**20], "float32", "booleans where float32"),
        ([2.0, 1], "int64", "fractions where int64"),
    ],
)
def test_numbers_that_do_not_fit_are_refused_as_such(values: Any, dtype: str, why: str) -> None:
    with pytest.raises(Refused, match=f"input 'x': {why}"):
        json_arrays.as_array(values, np.dtype(dtype), "x")


@settings(max_examples=300, deadline=None)
@given(st.lists(st.floats(width=32), max_size=60))
def test_a_float_of_32_bits_is_written_in_six_digits_or_else_in_nine(values: list[float]) -> None:
    array = np.array(values, np.float32)
    found = in_few_digits(array)
    assert np.array_equal(found.astype(np.float32), array, equal_nan=True)
    for value, written in zip(values, found.tolist(), strict=True):
        six, nine = float(f"{value:.6g}"), float(f"{value:.9g}")
        wanted = six if np.float32(six) == np.float32(value) else nine
        assert written == wanted or math.isnan(value)


def test_floats_of_32_bits_are_written_as_they_were_meant() -> None:
    meant = [0.1, -0.3, 1e-7, 1234.5, 0.0, 16777216.0, 0.333333343, 1e-30, 3.4e38]
    for times in 1, 10:  # few are looked at one by one
        array = np.array([meant] * times, np.float32)
        assert json.dumps(in_few_digits(array).tolist()) == json.dumps([meant] * times)
