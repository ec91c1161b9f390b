"""Whatever the graph, the fetches, the dtypes and the shapes: both classes give the same."""

from __future__ import annotations

import collections
import warnings
from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensorflow as tf

    from test_compat_conformance import plain

import invariants
from sojourn.compat.v1 import Session

v1 = tf.compat.v1
pytestmark = pytest.mark.filterwarnings("ignore")
Pair = collections.namedtuple("Pair", "first second")

DTYPES = [np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_, np.complex64]
shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
# Places in the list of tensors; -1 stands for the operation.
leaves = st.integers(-1, 5)
structures = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2) | st.integers(0, 3), inner, max_size=3)
        | st.tuples(inner, inner).map(lambda pair: Pair(*pair))
    ),
    max_leaves=6,
)


class Bench:
    """One graph that grows and a session of each kind on it, for all examples of a test."""

    def __init__(self) -> None:
        self.graph = tf.Graph()
        self.sessions = [
            v1.Session(graph=self.graph),
            Session(graph=self.graph, isolation="inline"),
            Session(graph=self.graph),
        ]

    def same(self, fetches: Any, feeds: Any = None, times: int = 1) -> None:
        """Each session sees the same, the first time and from the cached plan."""
        for _ in range(times):
            seen = [_outcome(session, fetches, feeds) for session in self.sessions]
            assert seen[1] == seen[0]
            assert seen[2] == seen[0]

    def close(self) -> None:
        for session in self.sessions:
            session.close()


def _outcome(session: Any, fetches: Any, feeds: Any) -> Any:
    try:
        return plain(session.run(fetches, feeds))
    except (TypeError, ValueError) as error:
        return type(error).__name__, str(error)
    except tf.errors.OpError as error:
        return type(error).__name__, error.op.name if error.op is not None else None


@pytest.fixture(scope="module")
def bench(request: pytest.FixtureRequest) -> Any:
    import sojourn

    sojourn.warm_up(wait=True)
    bench = Bench()
    yield bench
    bench.close()


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest, bench: Any) -> Any:
    """The sessions are there before a test is watched: they stay open, all examples share them."""
    yield from invariants.hold(request)


quick = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@quick
@given(data=st.data(), dtype=st.sampled_from(DTYPES), shape=shapes)
def test_arrays_of_every_dtype_and_shape(bench: Any, data: Any, dtype: Any, shape: Any) -> None:
    array = data.draw(hnp.arrays(dtype, shape))
    with bench.graph.as_default():
        x = v1.placeholder(tf.as_dtype(dtype))
        fetches = [tf.identity(x), tf.shape(x), x]
    bench.same(fetches, {x: array}, times=3)
    bench.same(fetches, {x: array.tolist()}, times=2)
    bench.same(fetches[0], {x.name: np.asfortranarray(array)}, times=2)


@quick
@given(structure=structures, value=st.floats(-10, 10, width=32))
def test_every_structure_of_fetches(bench: Any, structure: Any, value: float) -> None:
    with bench.graph.as_default():
        x = v1.placeholder(tf.float32, [])
        tensors = [x + 1, tf.constant([1, 2]), tf.constant("text"), x * [[1.0, 2.0]], x, x > 0]
        operation = tf.no_op()

    def filled(part: Any) -> Any:
        if isinstance(part, int):
            return operation if part < 0 else tensors[part]
        if isinstance(part, dict):
            return {key: filled(value) for key, value in part.items()}
        if isinstance(part, Pair):
            return Pair(*map(filled, part))
        return type(part)(map(filled, part))

    for fed in (value, [value], np.float32(value), int(value)):
        bench.same(filled(structure), {x: fed}, times=3)


@quick
@given(
    steps=st.lists(
        st.sampled_from(["add", "multiply", "sum", "reshape", "cast", "tile"]), max_size=5
    ),
    array=hnp.arrays(np.float32, hnp.array_shapes(max_dims=2, max_side=3),
                     elements=st.floats(-4, 4, width=32)),
)  # fmt: skip
def test_graphs_that_grow_between_steps(bench: Any, steps: list[str], array: np.ndarray) -> None:
    with bench.graph.as_default():
        x = v1.placeholder(tf.float32)
        y = x
        for step in steps:
            y = {
                "add": lambda y: y + 1.0,
                "multiply": lambda y: y * 2.0,
                "sum": lambda y: tf.reduce_sum(y, keepdims=True),
                "reshape": lambda y: tf.reshape(y, [-1]),
                "cast": lambda y: tf.cast(tf.cast(y, tf.int32), tf.float32),
                "tile": lambda y: tf.tile(tf.reshape(y, [-1]), [2]),
            }[step](y)
            bench.same([y, {"again": y}], {x: array}, times=2)


@quick
@given(
    given_shape=st.lists(st.none() | st.integers(0, 3), max_size=3) | st.none(),
    fed=hnp.arrays(st.sampled_from([np.float32, np.int64, np.complex128]), shapes),
)
def test_shapes_that_fit_and_shapes_that_do_not(
    bench: Any, given_shape: Any, fed: np.ndarray
) -> None:
    with bench.graph.as_default():
        x = v1.placeholder(tf.float32, given_shape, name="x")
        y = tf.reduce_sum(x)
    bench.same([y], {x: np.zeros([dim or 1 for dim in given_shape or ()])}, times=3)
    bench.same([y], {x: fed}, times=2)


@quick
@given(values=st.lists(st.text(max_size=3) | st.binary(max_size=3), max_size=4))
def test_texts_and_bytes(bench: Any, values: list[Any]) -> None:
    with bench.graph.as_default():
        x = v1.placeholder(tf.string, [None])
        fetches = [tf.identity(x), tf.strings.length(x)]
    bench.same(fetches, {x: values}, times=3)
    bench.same(fetches, {x: np.array(values, dtype=object)}, times=2)
