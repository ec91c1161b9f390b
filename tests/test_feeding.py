"""What may be fed, what is converted, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as hnp

from sojourn.errors import InputError
from sojourn.session.feeding import as_array
from sojourn.transport.dtypes import BY_NAME
from sojourn.values import TensorSpec, format_bytes, format_seconds, parse_bytes


def fed(dtype, value, shape=None):
    return as_array("x", TensorSpec(dtype, shape), value)


def test_what_widens_or_narrows_by_convention_is_converted():
    assert fed("float32", np.float64(1.5)).dtype == np.float32
    assert fed("float32", [1, 2]).tolist() == [1.0, 2.0]
    assert fed("complex64", 1.5).dtype == np.complex64
    assert fed("int64", True).tolist() == 1
    assert fed("bfloat16", 1.5).dtype == BY_NAME["bfloat16"]
    assert fed("uint8", [1, 255]).tolist() == [1, 255]
    assert fed("int32", np.int64(7)).dtype == np.int32


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float32", 1 + 2j),
        ("int32", 1.5),
        ("int32", 2**40),
        ("uint8", -1),
        ("bool", 1),
        ("float32", [1.0, None]),
        ("float32", "text"),
        ("float32", [[1.0], [1.0, 2.0]]),
        ("string", 3),
        ("string", ["a", None]),
        ("string", np.array([1.5])),
        ("resource", 1),
        ("any", [None]),
        ("any", np.array(["2020"], "datetime64[Y]")),
    ],
)
def test_what_would_be_damaged_is_refused_with_the_name(dtype, value):
    with pytest.raises(InputError, match="input 'x'"):
        fed(dtype, value)


def test_the_shape_must_fit():
    assert fed("float32", np.ones((2, 3)), (None, 3)).shape == (2, 3)
    with pytest.raises(InputError, match=r"takes float32\[\?, 3\]; got float32\[3\]"):
        fed("float32", np.ones(3), (None, 3))


def test_strings_keep_their_trailing_zeros():
    assert fed("string", [b"a\x00"]).tolist() == [b"a\x00"]


@given(hnp.arrays(np.int64, 5))
def test_integers_arrive_unchanged_or_not_at_all(array):
    try:
        got = fed("int16", array)
    except InputError:
        return
    assert got.tolist() == array.tolist()


def test_amounts_are_read_and_written_as_people_do():
    assert parse_bytes("2GiB") == 2**31
    assert parse_bytes("1.5 MB") == 1_500_000
    assert parse_bytes(77) == 77
    for wrong in ("many", "-1", "2 XB", -5, True, None):
        with pytest.raises(ValueError):
            parse_bytes(wrong)
    assert format_bytes(431 * 2**20) == "431 MiB"
    assert format_bytes(512) == "512 B"
    assert format_seconds(0.009) == "9.0 ms"
