"""What may be fed, what is converted, and what is refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sojourn.errors import InputError
from sojourn.session.feeding import as_array
from sojourn.values import TensorSpec, format_bytes, format_seconds, parse_bytes
from sojourn.values.dtypes import BY_NAME

explored = settings(deadline=None, database=None, derandomize=True)


def fed(dtype, value, shape=None):
    return as_array("x", TensorSpec(dtype, shape), value)


def nested(value, depth):
    """As a list, because numpy before its version 2 has no array of such a rank."""
    return nested([value], depth - 1) if depth else value


class NoArray:
    def __init__(self, error):
        self.error = error

    def __array__(self, *args, **kwargs):
        raise self.error


def test_what_widens_or_narrows_by_convention_is_converted():
    assert fed("float32", np.float64(1.5)).dtype == np.float32
    assert fed("float32", [1, 2]).tolist() == [1.0, 2.0]
    assert fed("complex64", 1.5).dtype == np.complex64
    assert fed("int64", True).tolist() == 1
    assert fed("bfloat16", 1.5).dtype == BY_NAME["bfloat16"]
    assert fed("uint8", [1, 255]).tolist() == [1, 255]
    assert fed("int32", np.int64(7)).dtype == np.int32
    assert fed("int32", np.array([3], ml_dtypes.int4)).tolist() == [3]
    assert fed("int4", [-8, 7]).tolist() == [-8, 7]
    assert fed("uint64", [2**63, 1]).tolist() == [2**63, 1]
    assert fed("float32", np.array([1.5], ">f8")).tolist() == [1.5]


def test_what_is_too_fine_for_the_type_is_rounded_as_tensorflow_does():
    assert fed("float32", 2**24 + 1) == 2**24
    assert fed("bfloat16", np.array([257])).tolist() == [256]
    assert fed("float32", 1e-300) == 0
    assert fed("float32", [np.inf, -np.inf]).tolist() == [np.inf, -np.inf]
    assert np.isnan(fed("bfloat16", np.float64("nan")))


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
        ("float32", 1e300),
        ("float32", np.array([1.0, -1e39])),
        ("float32", 2**200),
        ("float16", 70_000),
        ("bfloat16", np.float64(3.4e38)),
        ("float8_e4m3fn", 1000),
        ("complex64", 1e300j),
        ("complex64", complex(np.inf, 1e300)),
        ("int4", 8),
        ("uint4", -1),
        ("int64", 2**63),
        ("uint64", [2**64, 1]),
        ("uint64", [2**63, 0.5]),
        ("float32", np.ma.array([1.0, 2.0], mask=[False, True])),
        ("float32", np.ma.array(np.ones(2, np.float32), mask=[False, True])),
        ("float32", [np.ones(2), np.ma.array([1.0, 2.0], mask=[False, True])]),
        ("any", [[np.ma.array([1.0, 2.0], mask=[False, True])]]),
        ("string", np.ma.array(["a", "b"], mask=[False, True])),
        ("any", np.ma.masked),
        ("float32", np.zeros(1, [("a", "f4")])),
        ("float32", np.zeros(1, "V3")),
        ("any", np.zeros(1, "V3")),
        ("string", ["a", 1]),
        ("string", ["a", 1.5]),
        ("any", ["a", 1]),
        ("any", [True, "a"]),
        ("string", [["a"], ["b", "c"]]),
        ("any", [["a"], ["b", "c"]]),
        ("string", "\ud800"),
        ("any", np.array(["\udfff"])),
        ("string", nested("x", 33)),
        ("float32", NoArray(RuntimeError("not now"))),
        ("string", NoArray(TypeError("never"))),
        ("any", NoArray(KeyError("x"))),
    ],
)
def test_what_would_be_damaged_is_refused_with_the_name(dtype, value):
    with pytest.raises(InputError, match="input 'x'"):
        fed(dtype, value)


def test_the_shape_must_fit():
    assert fed("float32", np.ones((2, 3)), (None, 3)).shape == (2, 3)
    with pytest.raises(InputError, match=r"takes float32\[\?, 3\]; got float32\[3\]"):
        fed("float32", np.ones(3), (None, 3))


def test_running_out_of_memory_is_no_fault_of_the_input():
    with pytest.raises(MemoryError):
        fed("float32", NoArray(MemoryError()))


@pytest.mark.parametrize("dtype", ["string", "any"])
@pytest.mark.parametrize("text", ["a\0", b"a\0", "\0", "ä\0\0", np.str_("a\0"), ""], ids=repr)
def test_text_keeps_all_of_its_bytes(dtype, text):
    expected = text.encode() if isinstance(text, str) else text
    assert fed(dtype, text)[()] == expected
    assert fed(dtype, [[text], ["b"]]).tolist() == [[expected], [b"b"]]
    assert fed(dtype, np.array([text, b"b"], dtype=object)).tolist() == [expected, b"b"]


def test_text_is_the_same_from_every_kind_of_array():
    for array in (
        np.array(["ä", "b"]),
        np.array(["ä", "b"], dtype=object),
        np.array(["ä".encode(), b"b"]),
        np.array([["ä", "-"], ["b", "-"]])[:, 0],
    ):
        for dtype in ("string", "any"):
            assert fed(dtype, array).tolist() == ["ä".encode(), b"b"]
    assert fed("string", []).dtype == object
    assert fed("string", np.zeros((0, 3))).shape == (0, 3)


@pytest.mark.parametrize("dtype", ["float32", "any"])
def test_an_array_that_fits_is_not_even_copied(dtype):
    array = np.ones(3, np.float32)
    assert fed(dtype, array) is array
    assert np.shares_memory(fed(dtype, np.ma.array(array)), array)


@explored
@given(
    st.lists(st.integers(), min_size=1, max_size=3), st.sampled_from(["uint64", "int64", "int4"])
)
def test_any_integers_in_a_list_arrive_unchanged_or_not_at_all(items, dtype):
    limits = ml_dtypes.iinfo(BY_NAME[dtype])
    if all(limits.min <= item <= limits.max for item in items):
        assert [int(item) for item in fed(dtype, items)] == items
    else:
        with pytest.raises(InputError, match="does not fit"):
            fed(dtype, items)


@explored
@given(
    array=hnp.arrays(st.sampled_from(["f8", "f4", "i8"]), hnp.array_shapes(max_dims=2, max_side=9))
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float8_e5m2", "complex64"])
def test_finite_numbers_stay_finite_or_are_refused(array, dtype):
    with np.errstate(all="ignore"):
        expected = array.astype(BY_NAME[dtype])
    if (np.isfinite(array) & ~np.isfinite(expected)).any():
        with pytest.raises(InputError, match="does not fit"):
            fed(dtype, array)
    else:
        got = fed(dtype, array[::-1])
        # As numbers of numpy's own, which knows only of those how to compare what is not a number.
        np.testing.assert_array_equal(got.astype("c16"), expected[::-1].astype("c16"))


@explored
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
