"""Values of every kind, models that give back what they are fed, and what must come of it.

Run as a program it explores inline sessions, in a process of their own: they load TensorFlow.
"""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import sojourn

HIGHEST_RANK = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32
EXPLORING = settings(
    deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow], print_blob=False
)

# -- models ------------------------------------------------------------------------------------

TYPES = {
    "floats": np.float32,
    "any_floats": np.float32,
    "integers": np.int32,
    "bytes8": np.uint8,
    "flags": np.bool_,
    "complexes": np.complex64,
    "texts": np.object_,
    "halves": ml_dtypes.bfloat16,
}
HARMLESS = {
    name: np.full((1, 3), b"" if dtype is np.object_ else 0, dtype) for name, dtype in TYPES.items()
}


def several() -> Any:
    """An input of every kind that is common, and what TensorFlow makes of it."""
    import tensorflow as tf

    v1 = tf.compat.v1
    inputs = {
        name: v1.placeholder(dtype, [None, 3] if name == "floats" else None, name=name)
        for name, dtype in TYPES.items()
    }
    outputs = {f"{name}_back": tf.identity(tensor) for name, tensor in inputs.items()}
    outputs["product"] = tf.matmul(inputs["floats"], tf.ones([3, 2]))
    outputs["picked"] = tf.gather(tf.range(10), inputs["integers"])
    return inputs, outputs


def saved_in(folder: str) -> Callable[[], str]:
    """The same inputs, as a SavedModel."""

    def build() -> str:
        import tensorflow as tf

        def give_back(**inputs: Any) -> Any:
            return {f"{name}_back": tf.identity(tensor) for name, tensor in inputs.items()}

        module = tf.Module()
        module.give_back = tf.function(give_back)
        specs = {
            name: tf.TensorSpec([None, 3] if name == "floats" else None, dtype, name)
            for name, dtype in TYPES.items()
        }
        concrete = module.give_back.get_concrete_function(**specs)
        tf.saved_model.save(module, folder, signatures=concrete)
        return folder

    return build


def keras_model() -> Any:
    """Floats and integers, through layers of Keras."""
    import keras

    inputs = {
        "floats": keras.Input((3,), name="floats"),
        "integers": keras.Input((3,), name="integers", dtype="int32"),
    }
    return keras.Model(inputs, {f"{n}_back": keras.layers.Identity()(x) for n, x in inputs.items()})


def function() -> Any:
    """A plain function of anything; its output is to be called `anything_back`."""
    return lambda anything: anything


def echo(session: sojourn.Session, name: str, value: Any) -> Any:
    """What becomes of a value for this input; the others get something harmless."""
    feeds: dict[str, Any] = {n: HARMLESS.get(n) for n in session.signature.inputs}
    return verdict(session, f"{name}_back", {**feeds, name: value})


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


def verdicts() -> tuple[type[Exception], ...]:
    """Everything that a step may raise. A session that breaks is none of it."""
    if "tensorflow" not in sys.modules:
        return (sojourn.InputError, sojourn.EngineError)
    import tensorflow as tf

    return (sojourn.InputError, sojourn.EngineError, tf.errors.OpError)


# -- what may come -----------------------------------------------------------------------------


class NoArray:
    """Claims to be an array, and is none."""

    def __init__(self, given: Any) -> None:
        self._given = given

    def __repr__(self) -> str:
        return f"NoArray({self._given!r})"

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        if isinstance(self._given, Exception):
            raise self._given
        return self._given


def _heightened(array: np.ndarray) -> np.ndarray:
    return array.reshape(array.shape + (1,) * (HIGHEST_RANK - array.ndim))


def _frozen(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


_shapes = st.one_of(
    st.sampled_from([(1, 3), (2, 3)]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    hnp.array_shapes(min_dims=4, max_dims=6, min_side=0, max_side=2),
)
arrays = hnp.arrays(
    st.one_of(
        st.sampled_from(["f4", "i4", "u1", "?", "c8"]),
        hnp.floating_dtypes(),
        hnp.integer_dtypes(),
        hnp.unsigned_integer_dtypes(),
        hnp.complex_number_dtypes(),
        hnp.boolean_dtypes(),
        hnp.byte_string_dtypes(min_len=1, max_len=8),
        hnp.unicode_string_dtypes(min_len=1, max_len=8),
        hnp.datetime64_dtypes(),
    ),
    _shapes,
)
views = st.builds(
    lambda array, seen: seen(array),
    arrays,
    st.sampled_from(
        [
            np.transpose,
            np.asfortranarray,
            _frozen,
            _heightened,
            lambda array: array[::-1] if array.ndim else array,
            lambda array: array[..., ::2] if array.ndim else array,
            lambda array: np.broadcast_to(array, (2, *array.shape)),
            lambda array: array.astype(object),
        ]
    ),
)
small = hnp.arrays("f4", _shapes, elements=st.integers(-2, 1).map(float))
ml_arrays = st.builds(
    lambda array, name: array.astype(getattr(ml_dtypes, name)),
    small,
    st.sampled_from("bfloat16 float8_e5m2 float8_e4m3fn int4 uint4 float8_e3m4".split()),
)
masked_arrays = st.builds(
    lambda array, mask: np.ma.array(array, mask=mask),
    hnp.arrays(st.sampled_from(["f4", "f8", "i4", "U2"]), (1, 3)),
    st.lists(st.booleans(), min_size=3, max_size=3).map(lambda mask: [mask]),
)
texts = st.one_of(
    st.text(max_size=5),
    st.text(st.characters(), max_size=3),  # halves of characters, too
    st.binary(max_size=5),
    st.sampled_from(["a\0", b"a\0", "\0", "\ud800", np.str_("a\0"), np.bytes_(b"a")]),
)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.complex_numbers(), texts
)
values = st.one_of(
    arrays,
    views,
    ml_arrays,
    masked_arrays,
    scalars,
    texts,
    st.lists(texts, max_size=4),
    st.lists(st.one_of(texts, st.integers(0, 9)), max_size=3),
    st.lists(masked_arrays, max_size=2),
    st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=8),
    st.builds(NoArray, st.one_of(small, scalars)),
    st.sampled_from([object(), {}, {"a": 1}, {1, 2}, lambda: None, range(3), slice(1), Ellipsis]),
    st.sampled_from([NoArray(RuntimeError("not now")), NoArray(KeyError()), memoryview(b"ab")]),
    st.sampled_from([np.zeros((1, 3), [("a", "f4")]), np.zeros((1, 3), "V3"), np.ma.masked]),
)


# -- what must come of it ----------------------------------------------------------------------


def plainly_fits(session: sojourn.Session, name: str, value: Any) -> bool:
    """Whether it is an array of exactly the type and shape that the input takes."""
    dtype = TYPES.get(name)
    return (
        type(value) is np.ndarray
        and dtype is not np.object_
        and value.dtype.kind in "fiub"
        and (dtype is None or value.dtype == dtype)
        and session.signature.inputs[name].accepts(value.shape)
    )


def check_unharmed(given: Any, result: Any) -> None:
    """Every element came back as it was, narrowed by convention at most."""
    shape, leaves = taken_apart(given)
    got = result if hasattr(result, "dtype") else np.array([result], dtype=object).reshape(())
    assert got.shape == shape
    for item, leaf in zip(got.reshape(-1).tolist(), leaves, strict=True):
        if got.dtype == object:
            assert isinstance(leaf, str | bytes)
            assert item == (leaf.encode() if isinstance(leaf, str) else leaf)
        elif got.dtype.kind in "biu" or "int" in got.dtype.name:
            assert "int" in type(leaf).__name__ or isinstance(leaf, bool)
            assert got.dtype != bool or isinstance(leaf, bool)
            assert int(item) == int(leaf)  # never rounded, never wrapped
        elif got.dtype.kind == "c":
            part = np.dtype(f"f{got.dtype.itemsize // 2}")
            assert is_near(item.real, leaf.real, part)
            assert is_near(item.imag, leaf.imag, part)
        else:
            assert is_near(float(item), leaf, got.dtype)


def is_near(got: float, leaf: Any, dtype: np.dtype) -> bool:
    """Whether this is the number, as exactly as the type can say it."""
    if "int" in type(leaf).__name__:
        leaf = int(leaf)
    else:
        assert isinstance(leaf, bool | float) or "float" in type(leaf).__name__
        leaf = float(leaf)
    if not math.isfinite(leaf):
        return got == leaf or (math.isnan(got) and math.isnan(leaf))
    limits = ml_dtypes.finfo(dtype)
    error = abs(Fraction(got) - Fraction(leaf)) if math.isfinite(got) else math.inf
    step = Fraction(float(limits.eps)) * abs(Fraction(leaf))
    return error <= max(step, Fraction(float(limits.smallest_normal)))


def taken_apart(value: Any) -> tuple[tuple[int, ...], list[Any]]:
    """The shape of a value and its elements, without help from numpy where that changes them."""
    if isinstance(value, NoArray | range | memoryview):
        value = np.asarray(value)
    if isinstance(value, np.ndarray):
        return value.shape, np.asarray(value).reshape(-1).tolist()
    if not isinstance(value, list):
        return (), [value]
    parts = [taken_apart(part) for part in value]
    shapes = {shape for shape, _ in parts}
    assert len(shapes) <= 1, "this is no array, and yet it arrived"
    return (len(value), *(shapes.pop() if shapes else ())), [leaf for _, p in parts for leaf in p]


# -- exploring ---------------------------------------------------------------------------------


def explore(holds: Callable[..., None], number: int, examples: int, **strategies: Any) -> None:
    """Check that it holds for as many examples, which follow from a number."""
    seed(number)(settings(EXPLORING, max_examples=examples)(given(**strategies)(holds)))()


def explore_values(session: sojourn.Session, number: int, examples: int) -> None:
    """Any value for any input arrives unharmed or is refused."""

    def holds(name: str, value: Any) -> None:
        with warnings.catch_warnings():
            # numpy says so itself where it makes something else of an element.
            warnings.simplefilter("error")
            result = echo(session, name, value)
        if not isinstance(result, Exception):
            check_unharmed(value, result)
        else:
            assert not plainly_fits(session, name, value), result

    names = st.sampled_from(list(session.signature.inputs))
    explore(holds, number, examples, name=names, value=values)


def main(number: int, examples: int) -> None:
    for build, outputs in ((several, None), (function, ["anything_back"])):
        with sojourn.open(build, isolation="inline", outputs=outputs) as session:
            explore_values(session, number, examples)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main(*map(int, sys.argv[1:]))
    print("all is well")
