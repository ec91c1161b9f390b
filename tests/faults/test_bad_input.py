"""Any feeds and fetches: what would be damaged is refused, the rest gets a verdict of its type."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import sojourn

settings.register_profile(
    "faults",
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    database=None,
    derandomize=True,
)
settings.load_profile("faults")


# Everything that a step may raise. A session that breaks is none of it.
def verdicts() -> tuple[type[Exception], ...]:
    if "tensorflow" not in sys.modules:
        return (sojourn.InputError, sojourn.EngineError)
    import tensorflow as tf

    return (sojourn.InputError, sojourn.EngineError, tf.errors.OpError)


def several() -> Any:
    """An input of every kind that is common, and what TensorFlow makes of it."""
    import tensorflow as tf

    v1 = tf.compat.v1
    inputs = {
        "floats": v1.placeholder(tf.float32, [None, 3], name="floats"),
        "any_floats": v1.placeholder(tf.float32, None, name="any_floats"),
        "integers": v1.placeholder(tf.int32, None, name="integers"),
        "bytes8": v1.placeholder(tf.uint8, None, name="bytes8"),
        "flags": v1.placeholder(tf.bool, None, name="flags"),
        "complexes": v1.placeholder(tf.complex64, None, name="complexes"),
        "texts": v1.placeholder(tf.string, None, name="texts"),
        "halves": v1.placeholder(tf.bfloat16, None, name="halves"),
    }
    outputs = {f"{name}_back": tf.identity(tensor) for name, tensor in inputs.items()}
    outputs["product"] = tf.matmul(inputs["floats"], tf.ones([3, 2]))
    outputs["picked"] = tf.gather(tf.range(10), inputs["integers"])
    return inputs, outputs


@pytest.fixture(scope="module")
def session(zygote: None) -> Iterator[sojourn.Session]:
    with sojourn.open(several, name="several") as opened:
        yield opened


INPUTS = "floats any_floats integers bytes8 flags complexes texts halves".split()

arrays = hnp.arrays(
    st.one_of(
        hnp.floating_dtypes(),
        hnp.integer_dtypes(),
        hnp.unsigned_integer_dtypes(),
        hnp.complex_number_dtypes(),
        hnp.boolean_dtypes(),
        hnp.byte_string_dtypes(min_len=1, max_len=8),
        hnp.unicode_string_dtypes(min_len=1, max_len=8),
        hnp.datetime64_dtypes(),
    ),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=5),
    st.binary(max_size=5),
)
values = st.one_of(
    arrays,
    scalars,
    st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=8),
    st.sampled_from([object(), {}, {"a": 1}, {1, 2}, lambda: None, range(3), slice(1)]),
)
fetches = st.one_of(
    st.none(),
    st.text(max_size=12),
    st.sampled_from(["product", "picked", "nothing", "floats", "floats:0", "product:0", ":0", ""]),
    st.lists(
        st.one_of(st.sampled_from(["product", "texts_back", "no"]), st.text(max_size=4)), max_size=3
    ),
    st.lists(st.one_of(st.none(), st.integers()), min_size=1, max_size=2),
)


def verdict(session: sojourn.Session, fetched: Any, feeds: Any) -> Any:
    """The result, or the error, which must be one that says what was wrong."""
    pid = session.pid
    try:
        result = session.run(fetched, feeds, timeout=60)
    except verdicts() as error:
        assert str(error)  # noqa: PT017
        result = error
    assert session.pid == pid
    assert session.state is sojourn.State.READY
    return result


@given(name=st.sampled_from(INPUTS), value=values)
def test_any_value_for_any_input_arrives_unharmed_or_is_refused(session, name, value):
    result = verdict(session, f"{name}_back", {name: value})
    if isinstance(result, Exception):
        return
    given_array, got = np.asarray(value), np.asarray(result)
    assert got.shape == given_array.shape
    if name == "texts":
        flat = [t.encode() if isinstance(t, str) else bytes(t) for t in given_array.reshape(-1)]
        assert [bytes(b).rstrip(b"\0") for b in got.reshape(-1)] == [t.rstrip(b"\0") for t in flat]
    elif got.dtype.kind in "iub":
        assert got.tolist() == given_array.tolist()  # never rounded, never wrapped
    else:
        with np.errstate(all="ignore"):
            expected = given_array.astype(got.dtype)
        np.testing.assert_array_equal(got, expected)  # narrowed by convention, nothing worse
        assert np.isrealobj(given_array) or got.dtype.kind == "c"


@given(fetched=fetches, rows=st.integers(0, 3), names=st.lists(st.text(max_size=6), max_size=2))
def test_any_fetch_gets_a_result_or_is_refused_by_name(session, fetched, rows, names):
    feeds: dict[Any, Any] = {"floats": np.ones((rows, 3), np.float32)}
    feeds.update(dict.fromkeys(names, 1.0))
    verdict(session, fetched, feeds)


@given(
    key=st.one_of(st.none(), st.integers(), st.text(max_size=6), st.tuples(st.text(max_size=2))),
    value=values,
)
def test_any_name_for_an_input_is_known_or_refused(session, key, value):
    verdict(session, "product", {"floats": np.ones((1, 3), np.float32), key: value})


@given(index=hnp.arrays(np.int32, hnp.array_shapes(min_dims=0, max_dims=2, max_side=4)))
def test_an_index_out_of_range_is_tensorflows_verdict(session, index):
    result = verdict(session, "picked", {"integers": index})
    if ((index >= 0) & (index < 10)).all():
        assert result.tolist() == index.tolist()
    else:
        assert isinstance(result, verdicts()[1:])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("floats", np.array([[1 + 2j, 0, 0]])),
        ("any_floats", np.array([1.0, None], dtype=object)),
        ("integers", 1.5),
        ("integers", 2**40),
        ("bytes8", -1),
        ("flags", 2),
        ("texts", np.array(["a", None], dtype=object)),
    ],
)
def test_what_tensorflow_damages_without_a_word_is_refused(session, name, value):
    assert isinstance(verdict(session, f"{name}_back", {name: value}), sojourn.InputError)


@pytest.mark.parametrize(
    "shape", [(0, 3), (2**13, 3), (1, 3, 1), (3,), (), (1, 2), (1, 4)], ids=str
)
def test_any_shape_is_taken_or_refused(session, shape):
    result = verdict(session, "product", {"floats": np.ones(shape, np.float32)})
    fits = len(shape) == 2 and shape[1] == 3
    assert isinstance(result, np.ndarray if fits else sojourn.InputError)
