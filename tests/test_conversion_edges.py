"""Where engines part: a converted model gives TensorFlow's answer there too, or none."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sojourn
from needed import needs_engines
from sojourn.errors import EngineError, InputError, ModelError
from sojourn.session.conversion import proof, trying
from sojourn.session.conversion.inputs import generated, spoilt
from sojourn.session.opening import Blueprint
from sojourn.values import Signature, TensorSpec, caller

pytestmark = pytest.mark.usefixtures("own_cache")


# Builders of models; each runs in a worker.


def whole_numbers() -> Any:
    import tensorflow as tf

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.int64, name="a"),
            tf.TensorSpec([None], tf.int64, name="b"),
        ]
    )
    def f(a: Any, b: Any) -> Any:
        days = {"day": a // 7, "left": a % 7, "back": a // -7, "other": a % -7}
        compared = {"less": a < b, "most": a <= b, "more": a > b, "least": a >= b}
        chosen = {"larger": tf.maximum(a, b), "smaller": tf.minimum(b, tf.maximum(a, 0))}
        sums = {
            "sum": tf.reduce_sum(tf.stack([a, b]), 0),
            "all": tf.reduce_sum(tf.cast(a, "int32")),
        }
        there_and_back = {"rounded": tf.cast(tf.cast(a, tf.float32), tf.int64)}
        by = tf.where(tf.equal(b, 0), tf.ones_like(b), b)
        divided = {
            "floor": a // by,
            "rest": a % by,
            "cut": tf.raw_ops.TruncateDiv(x=a, y=by),
            "cut rest": tf.raw_ops.TruncateMod(x=a, y=by),
        }
        there_and_back["hot"] = tf.one_hot(a, 5)
        return {**days, **compared, **chosen, **sums, **divided, **there_and_back}

    return f


def divided() -> Any:
    import tensorflow as tf

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.int32, name="a"),
            tf.TensorSpec([None], tf.int32, name="b"),
        ]
    )
    def f(a: Any, b: Any) -> Any:
        by = tf.where(tf.equal(b, 0), tf.ones_like(b), b)
        return {
            "floor": a // by,
            "rest": a % by,
            "back": a % -1 + a // -1,
            "cut": tf.raw_ops.TruncateDiv(x=a, y=by),
        }

    return f


def around() -> Any:
    import tensorflow as tf

    return tf.function(
        lambda a: {"day": a % 86400.0, "back": a % -3.0},
        input_signature=[tf.TensorSpec([None], tf.float32, name="a")],
    )


def looked_up() -> Any:
    import tensorflow as tf

    table = np.arange(400, dtype=np.float32).reshape(200, 2)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, name="ids")])
    def f(ids: Any) -> Any:
        return {"y": tf.gather(table, ids) * 2.0}

    return f


def odd() -> Any:
    """LiteRT takes the exponential of NaN for a number, and ONNX Runtime the mean of nothing."""
    import tensorflow as tf

    return tf.function(
        lambda x: {
            "y": tf.exp(-tf.abs(x)),
            "sign": tf.sign(x) * 2.0,
            "mean": tf.reduce_mean(x, 0),
            "whole": tf.cast(x, tf.int32),
        },
        input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")],
    )


def shares() -> Any:
    """A softmax of infinity is another in each engine, but none of its parts is finite."""
    import tensorflow as tf

    weights = tf.constant(np.random.default_rng(1).normal(size=(784, 10)), tf.float32)
    return tf.function(
        lambda x: {"share": tf.nn.softmax(x @ weights), "size": tf.reduce_sum(x * x, 1)},
        input_signature=[tf.TensorSpec([None, 784], tf.float32, name="x")],
    )


def tiny() -> Any:
    """LiteRT takes it for exp(x) - 1, which is nothing like it near zero."""
    import tensorflow as tf

    return tf.function(
        lambda x: {"y": tf.math.expm1(x)},
        input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")],
    )


def waves() -> Any:
    """LiteRT gives any number for the cosine of a large one, and NaN for a sigmoid."""
    import tensorflow as tf

    return tf.function(
        lambda x: {"cos": tf.cos(x), "gate": tf.sigmoid(x)},
        input_signature=[tf.TensorSpec([None], tf.float32, name="x")],
    )


def counted_down() -> Any:
    """It takes as many turns as its input says, and has no end where one less is the same."""
    import tensorflow as tf

    def f(x: Any) -> Any:
        step = lambda x, n: (tf.where(x > 0.0, x - 1.0, x), n + 1.0)  # noqa: E731
        left, turns = tf.while_loop(lambda x, _: tf.reduce_any(x > 0.0), step, (x, 0.0))
        return {"left": left, "turns": turns}

    return tf.function(f, input_signature=[tf.TensorSpec([None], tf.float32, name="x")])


def doubled() -> Any:
    """It has no end where what is doubled is not positive."""
    import tensorflow as tf

    def f(x: Any) -> Any:
        [y] = tf.while_loop(lambda x: tf.reduce_sum(x) < 100.0, lambda x: (x * 2,), (x,))
        return {"y": y}

    return tf.function(f, input_signature=[tf.TensorSpec([None], tf.float32, name="x")])


def roots() -> Any:
    """LiteRT takes the root by way of its reciprocal, which is too small a number for some."""
    import tensorflow as tf

    return tf.function(
        lambda x: {"root": tf.sqrt(tf.abs(x))},
        input_signature=[tf.TensorSpec([None], tf.float32, name="x")],
    )


def cut() -> Any:
    """A slice that ends where an input says, which tf2onnx makes a float of."""
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 9], name="x")
    end = v1.placeholder(tf.int32, [], name="end")
    return {"x": x, "end": end}, {"y": x[:, :end]}


def column() -> Any:
    """ONNX has no single column of a slice, and takes the first for one that is not there."""
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 9], name="x")
    at = v1.placeholder(tf.int32, [], name="at")
    return {"x": x, "at": at}, {"y": x[:, at]}


def cut_far() -> Any:
    """LiteRT takes the low half of where a slice ends."""
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 9], name="x")
    end = v1.placeholder(tf.int64, [], name="end")
    return {"x": x, "end": end}, {"y": x[:, :end]}


def logarithm() -> Any:
    import tensorflow as tf

    return tf.function(
        lambda x: {"log": tf.math.log(x)},
        input_signature=[tf.TensorSpec([None], tf.float64, name="x")],
    )


def filtered() -> Any:
    """ONNX Runtime has no convolution of nothing."""
    import tensorflow as tf

    kernel = np.arange(24, dtype=np.float32).reshape(3, 4, 2)
    return tf.function(
        lambda x: {"y": tf.nn.conv1d(x, kernel, 1, "SAME")},
        input_signature=[tf.TensorSpec([None, None, 4], tf.float32, name="x")],
    )


def checked() -> Any:
    import tensorflow as tf

    x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
    return {"x": x}, {"y": tf.debugging.check_numerics(x, "no") * 2.0}


def shaped() -> Any:
    import tensorflow as tf

    x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
    return {"x": x}, {"y": tf.ensure_shape(x, [3, 4]) * 2.0}


def large_indices() -> Any:
    """LiteRT takes the low half of an index of 64 bits."""
    import tensorflow as tf

    return tf.function(
        lambda a: {"hot": tf.one_hot(a, 5) * 2.0},
        input_signature=[tf.TensorSpec([None], tf.int64, name="a")],
    )


# Sessions


@needs_engines
def test_whole_numbers_are_divided_compared_and_added_as_tensorflow_does() -> None:
    large = [1_700_000_001, 1_700_000_003, 2**40, 2**62 + 1, 2**63 - 1, 2**31]
    a = np.array([-8, -7, -1, 0, 1, 6, 7, 9, *large], np.int64)
    feeds = {"a": a, "b": a[::-1] // 2 * 2}
    feeds["b"][8:10] = a[8:10] - 1  # which floats cannot tell apart
    feeds["a"][0], feeds["b"][0] = -(2**63), -1  # which processors do not divide
    with sojourn.open(whole_numbers) as session:
        expected = session.run(None, feeds)
    with sojourn.open(whole_numbers, engine="onnxruntime") as session:
        assert proof.difference(expected, session.run(None, feeds)) == (0.0, "")


@needs_engines
def test_what_is_left_over_of_large_floats_is_exact() -> None:
    a = np.array([1e8, -1e8, 1.7e9, 7.5, -7.5, 0.0, 6.0], np.float32)
    with sojourn.open(around, engine="onnxruntime") as session:
        got = session.run(None, {"a": a})
    assert np.array_equal(got["day"], np.fmod(np.float64(a), 86400) % 86400)
    assert np.array_equal(got["back"], np.float64(a) % -3)


@needs_engines
def test_a_slice_ends_at_any_integer() -> None:
    x = np.ones((1, 9), np.float32)
    with sojourn.open(cut, engine="onnxruntime") as session:
        for end, left in ((4, 4), (-2, 7), (2**31 - 1, 9), (2**24 + 1, 9), (-(2**31), 0)):
            assert session.run("y", {"x": x, "end": np.int32(end)}).shape == (1, left)
    with sojourn.open(cut_far, engine="litert") as session:
        for end, left in ((4, 4), (-2, 7), (2**32 + 4, 9), (2**63 - 1, 9), (-(2**32) - 2, 0)):
            assert session.run("y", {"x": x, "end": np.int64(end)}).shape == (1, left)


@needs_engines
def test_a_column_that_is_not_there_is_refused() -> None:
    x = np.arange(18, dtype=np.float32).reshape(2, 9)
    with sojourn.open(column, engine="onnxruntime") as session:
        for at in (0, 8, -1, -9):
            assert session.run("y", {"x": x, "at": np.int32(at)}).tolist() == x[:, at].tolist()
        for at in (9, -10, 2**31 - 1, -(2**31)):
            with pytest.raises(EngineError):
                session.run("y", {"x": x, "at": np.int32(at)})


@needs_engines
def test_the_logarithm_of_a_double_is_a_double() -> None:
    x = np.array([1e-300, 1e-50, 1.0 + 1e-12, 1e300])
    with sojourn.open(logarithm, engine="onnxruntime") as session:
        assert np.allclose(session.run("log", {"x": x}), np.log(x), rtol=1e-14, atol=0)


@needs_engines
def test_the_least_integer_by_minus_one_is_itself() -> None:
    feeds = {
        "a": np.array([-(2**31), -(2**31), 7, -7, 2**31 - 1], np.int32),
        "b": np.array([-1, 1, -2, -1, -1], np.int32),
    }
    with sojourn.open(divided) as session:
        expected = session.run(None, feeds)
    assert expected["floor"].tolist() == [-(2**31), -(2**31), -4, 7, -(2**31) + 1]
    with sojourn.open(divided, engine="litert") as session:
        assert proof.difference(expected, session.run(None, feeds)) == (0.0, "")


@needs_engines
def test_an_index_that_tensorflow_refuses_is_refused() -> None:
    with sojourn.open(looked_up, engine="onnxruntime") as session:
        assert session.run("y", {"ids": np.array([199, 0], np.int32)}).tolist()[1] == [0, 2]
        for wrong in (-1, 200):
            with pytest.raises(EngineError, match="indices element out of data bounds"):
                session.run("y", {"ids": np.array([1, wrong], np.int32)})
        assert session.run("y", {"ids": np.array([1], np.int32)}).tolist() == [[4, 6]]


@needs_engines
@pytest.mark.parametrize(
    ("engine", "refused"), [("onnxruntime", "no elements"), ("litert", "values that are not")]
)
def test_what_is_odd_is_answered_as_by_tensorflow_or_refused(engine: str, refused: str) -> None:
    x = np.array([[1, 2, 3, 4], [1, np.nan, 3, 4], [1, np.inf, 3, 4]], np.float32)
    denormal = np.array([[1e-40, -1e-40, 1e-30, 0]], np.float32)
    tried = [x[:1], x[1:], x[2:], x[:0], denormal, np.full((1, 4), 3e38, np.float32)]
    refusals = ""
    with sojourn.open(odd) as reference, sojourn.open(odd, engine=engine) as session:
        for array in tried:
            expected = reference.run(None, {"x": array})
            try:
                got = session.run(None, {"x": array})
            except InputError as error:
                refusals += str(error)
                continue
            differs, wrong = proof.difference(expected, got)
            assert (wrong, differs < 1e-5) == ("", True)
        assert reference.run("sign", {"x": denormal}).tolist() == [[0, 0, 2, 0]]
        assert session.run("sign", {"x": denormal}).tolist() == [[0, 0, 2, 0]]
    assert f"'x' has {refused}" in refusals
    assert f"for which {engine} may give other answers than TensorFlow" in refusals


@needs_engines
def test_inputs_that_their_outputs_show_are_refused_by_a_look_at_the_outputs() -> None:
    [candidate] = Blueprint(shares, engine="onnxruntime").examine(caller()).candidates
    assert candidate.is_shown
    x = np.zeros((3, 784), np.float32)
    x[1, 5] = 1e30  # whose square is infinite, in both
    with sojourn.open(shares, engine="onnxruntime") as session:
        assert session.run("size", {"x": x}).tolist() == [0, np.inf, 0]
        for wrong in (np.nan, np.inf, -np.inf):
            x[2, 7] = wrong
            for fetched in ("share", "size"):
                with pytest.raises(InputError, match="'x' has values that are not finite"):
                    session.run(fetched, {"x": x})


@needs_engines
def test_nothing_along_any_dimension_is_tried() -> None:
    with sojourn.open(filtered, engine="onnxruntime") as session:
        assert session.run("y", {"x": np.ones((2, 1, 4), np.float32)}).shape == (2, 1, 2)
        with pytest.raises(InputError, match="'x' has no elements"):
            session.run("y", {"x": np.ones((2, 0, 4), np.float32)})


@needs_engines
def test_an_answer_that_is_wrong_for_small_inputs_only_is_a_refusal() -> None:
    with pytest.raises(ModelError, match=r"litert .*differs by"):
        sojourn.open(tiny, engine="litert")
    with sojourn.open(tiny, engine="onnxruntime") as session:
        x = np.full((1, 4), 1e-7, np.float32)
        assert np.allclose(session.run("y", {"x": x}), x, rtol=1e-5, atol=0)


@needs_engines
def test_a_float_that_is_too_large_for_an_engine_is_refused() -> None:
    with sojourn.open(waves) as reference, sojourn.open(waves, engine="litert") as session:
        fine = {"x": np.array([-9e3, 1e3, 0.5, 0.0], np.float32)}
        assert proof.difference(reference.run(None, fine), session.run(None, fine))[0] < 1e-5
        assert session.run(None, {"x": fine["x"][:0]})["cos"].shape == (0,)
        for wrong in (3e9, -1e30, np.nan, np.inf):
            with pytest.raises(InputError, match=r"'x' has values .* beyond 1e\+04, for"):
                session.run(None, {"x": np.array([1, wrong], np.float32)})
    largest = np.array([1e30, 3.4e38], np.float32)
    with sojourn.open(roots, engine="litert") as session:
        assert np.allclose(session.run("root", {"x": largest[:1]}), 1e15)
        with pytest.raises(InputError, match=r"'x' has values .* beyond 1e\+30, for"):
            session.run(None, {"x": largest})
    with sojourn.open(waves, engine="onnxruntime") as session:
        assert session.run("gate", {"x": np.array([1e30], np.float32)}).tolist() == [1]


@needs_engines
def test_a_loop_is_not_tried_with_an_input_that_keeps_it_going_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with sojourn.open(counted_down, engine="onnxruntime", timeout=120) as session:
        assert session.run("turns", {"x": np.array([2.5, 7], np.float32)}) == 7
        with pytest.raises(InputError, match="not finite"):
            session.run("turns", {"x": np.array([2.5, np.inf], np.float32)}, timeout=60)
    monkeypatch.setattr(trying, "_PATIENCE_SECONDS", 2.0)
    with pytest.raises(ModelError, match="loops without an end for an input: give samples="):
        sojourn.open(doubled, engine="onnxruntime", timeout=120)
    samples = [{"x": np.array([n, 7], np.float32)} for n in (3, 4)]
    with sojourn.open(doubled, engine="onnxruntime", samples=samples, timeout=120) as session:
        assert session.run(None, {"x": np.array([1, 7], np.float32)})["y"].tolist() == [16, 112]


@needs_engines
def test_an_index_beyond_32_bits_is_none_of_the_small_ones() -> None:
    with sojourn.open(large_indices, engine="litert") as session:
        small = session.run("hot", {"a": np.array([0, 4, 5, -1], np.int64)})
        assert small.sum(axis=1).tolist() == [2, 2, 0, 0]
        large = np.array([2**32, 2**32 + 4, 2**63 - 1, -(2**63)], np.int64)
        assert not session.run("hot", {"a": large}).any()


@needs_engines
@pytest.mark.parametrize(("build", "told"), [(checked, "CheckNumerics"), (shaped, "EnsureShape")])
def test_a_model_that_refuses_inputs_is_not_converted(build: Callable[[], Any], told: str) -> None:
    with pytest.raises(ModelError, match=f"{told} .*refuses some inputs"):
        sojourn.open(build, engine="onnxruntime")


@needs_engines
def test_what_was_recorded_beside_a_model_is_what_it_is_tried_with(tmp_path: Path) -> None:
    path = tmp_path / "m"

    def write(path: str) -> None:
        import tensorflow as tf

        module = tf.Module()
        table = np.arange(100, dtype=np.float32)
        module.serve = tf.function(
            lambda ids: {"y": tf.gather(table, ids - 500)},
            input_signature=[tf.TensorSpec([None], tf.int32, name="ids")],
        )
        tf.saved_model.save(module, path, signatures=module.serve)

    def record(path: str) -> None:
        import os

        import tensorflow as tf

        from sojourn.service.grpc.messages import TFSERVING

        os.makedirs(f"{path}/assets.extra")
        with tf.io.TFRecordWriter(f"{path}/assets.extra/tf_serving_warmup_requests") as file:
            for n in (1, 2, 3):
                log = TFSERVING.PredictionLog()
                proto = tf.make_tensor_proto(np.arange(500 + n, 510, dtype=np.int32))
                log.predict_log.request.inputs["ids"].ParseFromString(proto.SerializeToString())
                file.write(log.SerializeToString())

    sojourn.isolated(write)(str(path))
    with pytest.raises(ModelError, match="it takes no input that could be made"):
        sojourn.open(path, engine="onnxruntime")
    sojourn.isolated(record)(str(path))
    with sojourn.open(path, engine="onnxruntime") as session:
        assert session.run("y", {"ids": np.array([502, 599], np.int32)}).tolist() == [2, 99]


@needs_engines
def test_without_a_place_for_converted_models_the_fastest_is_tensorflow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with sojourn.open(odd, engine="fastest") as session:
        assert session.engine.startswith("tensorflow: ")
        assert "No space left on device" in session.engine
    with pytest.raises(ModelError, match="No space left on device"):
        sojourn.open(odd, engine="litert")


# Refusals


def refused_ops() -> dict[str, str]:
    """Graphs of one op, and the engines that they are refused for by name. Runs in a worker."""
    import tensorflow as tf

    from sojourn.engines import converting

    v1 = tf.compat.v1
    rows, ids = [8, 2, 2, 1], [0, 0, 1, 1, 2, 2, 3, 3]
    ops: dict[str, Callable[[Any], Any]] = {
        "TopKV2": lambda x: tf.math.top_k(x, 1)[0],
        "Mean": lambda x: tf.reduce_mean(x, 0),
        "Prod": lambda x: tf.reduce_prod(x, 0),
        "Prod of sizes": lambda x: tf.reduce_prod(tf.shape(tf.where(x > 0))),
        "Max": lambda x: tf.reduce_max(x, 0),
        "Sign": lambda x: tf.sign(x),
        "Pow": lambda x: tf.pow(x, x),
        "Unique": lambda x: tf.unique(tf.reshape(x, [-1]))[0],
        "MaxPool": lambda x: v1.nn.max_pool(x, 2, 2, "SAME"),
        "SegmentSum": lambda x: tf.math.segment_sum(x, ids),
        "UnsortedSegmentProd": lambda x: tf.math.unsorted_segment_prod(x, ids, 4),
        **{
            f"Cast to {name}": lambda x, name=name: tf.cast(x, name)
            for name in ("uint16", "int16", "int32", "uint32", "uint64")
        },
    }
    converting._MAKERS = dict.fromkeys(("onnxruntime", "litert"), lambda *_: b"")  # type: ignore
    found = {}
    for dtype in ("float32", "float64", "int32", "int64"):
        for name, op in ops.items():
            with v1.Graph().as_default(), v1.Session() as session:
                x = v1.placeholder(dtype, rows)
                outputs = {"y": tf.identity(op(x))}
                refused = []
                for engine in ("onnxruntime", "litert"):
                    try:
                        converting.convert(session, {"x": x}, outputs, engine)
                    except ModelError as error:
                        is_named = f": {name.split()[0]} (" in str(error)
                        refused.append(engine if is_named else str(error))
            found[f"{name}, {dtype}"] = " and ".join(refused)
    return {case: engines for case, engines in found.items() if engines}


@needs_engines
def test_what_an_engine_does_in_another_way_is_refused_by_the_name_of_the_op() -> None:
    as_floats = ("TopKV2", "Mean", "Prod", "MaxPool", "SegmentSum", "UnsortedSegmentProd")
    assert sojourn.isolated(refused_ops)() == {
        **{f"{op}, {dtype}": "onnxruntime" for op in as_floats for dtype in ("int32", "int64")},
        **{f"{op}, int64": "onnxruntime" for op in ("Max", "Sign")},
        **{f"Pow, {dtype}": "onnxruntime and litert" for dtype in ("int32", "int64")},
        **{f"{op}, float64": "onnxruntime" for op in ("TopKV2", "Unique")},
        **{
            f"Cast to {dtype}, {floats}": "litert" if "16" in dtype else "onnxruntime and litert"
            for dtype in ("int16", "uint16", "uint32", "uint64")
            for floats in ("float32", "float64")
        },
    }


def lacking() -> dict[str, str]:
    """What is said of graphs that LiteRT has no ops for. Runs in a worker."""
    import tensorflow as tf

    from sojourn.engines import converting

    v1 = tf.compat.v1
    ops: dict[str, Callable[[Any], Any]] = {
        "Mul": lambda x: tf.multiply(x, x, name="times"),
        "Cast": lambda x: tf.cast(x, tf.int32, name="whole"),
        "Betainc": lambda x: tf.math.betainc(*[tf.cast(x, tf.float32)] * 3),
    }
    found = {}
    for name, op in ops.items():
        with v1.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder(tf.float64, [None, 4])
            try:
                converting.convert(session, {"x": x}, {"y": tf.identity(op(x))}, "litert")
            except ModelError as error:
                found[name] = str(error)
    return found


@needs_engines
def test_an_op_that_litert_lacks_is_named_with_its_types_and_its_place() -> None:
    refuses = "LiteRT's converter refuses it: LiteRT has no"
    assert sojourn.isolated(lacking)() == {
        "Mul": f"{refuses} Mul of float64 (times)",
        "Cast": f"{refuses} Abs of float64 (for whole)",
        "Betainc": f"{refuses} Betainc of float32 (Betainc)",
    }


# Decisions


def test_the_usual_magnitude_and_the_worst_difference_are_finite() -> None:
    samples = [np.array([3, -7, value], np.float32) for value in (np.nan, np.inf)]
    answered = [(1, {"x": sample}, {}) for sample in samples]
    assert trying.usual(trying.NOTHING._replace(answered=answered)) == 7
    large = np.array([3e38, 1], np.float32)
    worst, wrong = proof.disagreement({"y": large}, {"y": -large}, 1e-5)
    assert np.isfinite(worst)
    assert "differs by" in wrong


def test_an_answer_that_differs_is_hidden_if_it_is_finite() -> None:
    def hides(expected: Any, got: Any) -> bool:
        return proof.hides({"y": np.asarray(expected)}, {"y": np.asarray(got)}, 1e-5)

    nan = float("nan")
    assert not hides([1.0, nan], [1.0, nan])
    assert not hides([1.0, 0.0], [1.0, nan])  # who looks for NaN finds it
    assert hides([1.0, nan], [1.0, 0.0])
    assert hides([1.0, 2.0], [1.5, nan])
    assert hides([1, 2], [1, 3])
    assert hides([1.0], [[nan]])


def test_outputs_that_are_empty_never_finite_or_always_the_same_prove_nothing() -> None:
    def idle(*arrays: Any) -> str:
        return proof.says_nothing([{"y": np.asarray(array)} for array in arrays], 1e-5)

    assert idle(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32)) == "y"
    assert idle(np.full((2, 3), np.nan), np.full((2, 3), np.nan)) == "y"
    assert idle([3, 3], [3, 1]) == "y"  # the first row is always 3
    assert idle([3, 3], [1, 3]) == ""
    assert idle(np.ones((1, 3)), np.full((1, 3), 2.0)) == ""
    assert idle(np.ones((1, 3))) == ""  # the only sample that there is
    one, other = np.ones((1, 2)), np.zeros((1, 2))
    both = [{"y": one, "n": np.array([1])}, {"y": other, "n": np.array([1])}]
    assert proof.says_nothing(both, 1e-5) == ""


def test_inputs_have_ties_and_zeros_and_numbers_below_zero_large_and_tiny() -> None:
    signature = Signature(
        {"x": TensorSpec("float32", (None, 50)), "ids": TensorSpec("int32", (None, None))}
    )
    made = [feeds for _, feeds in generated(signature)]
    floats = np.concatenate([feeds["x"].ravel() for feeds in made])
    assert {-0.5, 0.0, 0.5, 1.5, 2.5} <= set(floats.tolist())
    assert floats.min() < -200
    assert any(0 < np.abs(feeds["x"]).max() < 1e-5 for feeds in made)
    assert min(feeds["ids"].min() for feeds in made) < 0
    assert max(feeds["ids"].max() for feeds in made) < 100
    assert len({feeds["ids"].shape[1] for feeds in made}) > 1
    assert any(not feeds["x"].any() for feeds in made)
    assert np.isnan(spoilt({"x": np.ones(5, np.float32)}, (np.nan,), 1)["x"]).tolist() == [
        *(False, True, False, False, True)
    ]
    spoiled = spoilt({"x": np.ones((2, 3), np.float32), "n": np.ones(2, np.int32)}, (np.nan,))
    assert np.isnan(spoiled["x"]).any()
    two = spoilt({"x": np.ones(6, np.float32), "y": np.ones(6, np.float32)}, (np.nan,), 1)
    assert not np.isnan(two["x"] + two["y"]).all()
    assert not np.isnan(two["x"][np.isnan(two["y"])]).any()
    assert spoiled["n"].tolist() == [1, 1]
