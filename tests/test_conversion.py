"""Another engine for a TensorFlow model: the same answers, proven, or a refusal that says why."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import sojourn
from needed import needs_engines
from sojourn import events
from sojourn.errors import ModelError
from sojourn.session.conversion import cache, proof
from sojourn.session.conversion.candidates import Candidate, Examined
from sojourn.session.conversion.choosing import fastest
from sojourn.session.conversion.inputs import BATCHES, LARGE_BATCH, MANY_ROWS, generated
from sojourn.values import Signature, TensorSpec

pytestmark = pytest.mark.usefixtures("own_cache")
X = np.random.default_rng(1).normal(size=(5, 16)).astype(np.float32)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SavedModel of two outputs, one of them of integers, with an op that ONNX does not have."""
    path = tmp_path_factory.mktemp("models") / "two"

    def write(path: str) -> None:
        import tensorflow as tf

        class Two(tf.Module):
            def __init__(self) -> None:
                super().__init__()
                self.w = tf.Variable(np.random.default_rng(2).normal(size=(16, 4)), dtype="float32")

            @tf.function(input_signature=[tf.TensorSpec([None, 16], tf.float32)])
            def serve(self, x: Any) -> Any:
                y = x @ self.w
                return {"y": tf.nn.gelu(y), "best": tf.argmax(y, axis=1)}

        module = Two()
        tf.saved_model.save(module, path, signatures=module.serve)

    sojourn.isolated(write)(str(path))
    return path


@pytest.fixture
def heard() -> Iterator[list[events.Event]]:
    found: list[events.Event] = []
    stop = events.subscribe(found.append)
    yield found
    stop()


# Builders of models; each runs in a worker.


def lstm() -> Any:
    import keras

    keras.utils.set_random_seed(1)
    layers = [keras.Input((6, 4), name="x"), keras.layers.LSTM(8), keras.layers.Dense(2, name="y")]
    return keras.Sequential(layers)


def in_groups() -> Any:
    """TensorFlow has no such convolution on a CPU, so Keras has it compiled."""
    import keras

    keras.utils.set_random_seed(1)
    layers = [keras.Input((8, 8, 4), name="x"), keras.layers.Conv2D(4, 3, groups=2, name="y")]
    return keras.Sequential(layers)


def constant() -> Any:
    import tensorflow as tf

    return tf.function(
        lambda x: {"y": x * 1e-9 + 1.0}, input_signature=[tf.TensorSpec([None, 16], tf.float32)]
    )


def counter() -> Any:
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 16], name="x")
    count = v1.get_variable("count", initializer=0.0, use_resource=True)
    return {"x": x}, {"y": x + count.assign_add(1.0)}


def noise() -> Any:
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 16], name="x")
    return {"x": x}, {"y": x + tf.random.uniform([16])}


def halves() -> Any:
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 16], name="x")
    return {"x": x}, {"y": tf.cast(tf.cast(x, tf.float16) * 2, tf.float32)}


def text() -> Any:
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 16], name="x")
    return {"x": x}, {"y": tf.strings.to_number(tf.strings.as_string(x))}


def unused() -> Any:
    import tensorflow as tf

    v1 = tf.compat.v1
    x, z = (v1.placeholder(tf.float32, [None, 3], name=name) for name in "xz")
    return {"x": x, "z": z}, {"y": x * 2.0}


def python() -> Any:
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 16], name="x")
    y = tf.numpy_function(lambda x: x, [x], tf.float32)
    y.set_shape([None, 16])
    return {"x": x}, {"y": y}


def random_in_a_loop() -> Any:
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([None, 16], tf.float32)])
    def f(x: Any) -> Any:
        for _ in tf.range(3):
            x = x + tf.random.normal([16])
        return {"y": x}

    return f


# Sessions


@needs_engines
@pytest.mark.parametrize("engine", ["onnxruntime", "litert"])
def test_a_converted_model_has_the_same_names_and_answers(saved: Path, engine: str) -> None:
    with sojourn.open(saved) as session:
        assert session.engine == "tensorflow"
        expected, signature = session.run(None, {"x": X}), session.signature
    with sojourn.open(saved, engine=engine) as session:
        assert session.engine.startswith(f"{engine} ")
        assert "worst difference" in session.engine
        assert session.signature == signature
        got = session.run(None, {"x": X})
        assert list(got) == list(expected)
        assert np.allclose(got["y"], expected["y"], atol=1e-5)
        assert np.array_equal(got["best"], expected["best"])
        with open(f"/proc/{session.pid}/maps") as maps:
            assert "tensorflow/python" not in maps.read()
    assert session.receipt.clean


@needs_engines
def test_what_was_found_out_once_is_not_found_out_again(
    saved: Path, own_cache: Path, heard: list[events.Event]
) -> None:
    with sojourn.open(saved, engine="onnxruntime") as session:
        told = session.engine
    assert any(event.session.endswith("-trial") for event in heard)
    heard.clear()
    with sojourn.open(saved, engine="onnxruntime") as session:
        assert session.engine == told
    assert not any(event.session.endswith("-trial") for event in heard)
    [chosen] = [event for event in heard if event.kind == "engine.chosen"]
    assert chosen.detail["engine"] == "onnxruntime"
    [file] = own_cache.glob("*/model.onnx")
    file.write_bytes(file.read_bytes()[:-1])  # damaged: made again
    heard.clear()
    with sojourn.open(saved, engine="onnxruntime") as session:
        session.run("y", {"x": X})
    assert any(event.session.endswith("-trial") for event in heard)
    assert cache.clear() > 0
    assert not list(own_cache.iterdir())


@needs_engines
def test_the_fastest_is_one_that_agrees_and_a_pool_leases_it(saved: Path) -> None:
    with sojourn.Pool(memory="2GiB") as pool:
        pool.register("two", saved, engine="fastest")
        with pool.lease("two") as lease:
            assert lease.engine.split()[0].rstrip(":") in ("tensorflow", "onnxruntime", "litert")
            assert lease.run("best", {"x": X}).dtype == np.int64


@needs_engines
def test_an_lstm_runs_on_one_engine_and_is_refused_by_the_other() -> None:
    x = np.random.default_rng(3).normal(size=(2, 6, 4)).astype(np.float32)
    with sojourn.open(lstm) as session:
        expected = session.run("y", {"x": x})
    with sojourn.open(lstm, engine="onnxruntime") as session:
        assert np.allclose(session.run("y", {"x": x}), expected, atol=1e-5)
    with pytest.raises(ModelError, match=r"cannot be run by litert .*TensorListReserve"):
        sojourn.open(lstm, engine="litert")


@needs_engines
def test_a_function_that_is_to_be_compiled_is_converted_too() -> None:
    x = np.random.default_rng(3).normal(size=(2, 8, 8, 4)).astype(np.float32)
    with sojourn.open(in_groups) as session:
        expected = session.run("y", {"x": x})
    with sojourn.open(in_groups, engine="onnxruntime") as session:
        assert np.allclose(session.run("y", {"x": x}), expected, atol=1e-5)


@needs_engines
@pytest.mark.parametrize(
    ("build", "told"),
    [
        (counter, "AssignAddVariableOp .*keeps or changes state"),
        (noise, "RandomUniform .*draws random numbers"),
        (random_in_a_loop, "Random.*draws random numbers"),
        (halves, "computes with halves"),
        (text, "AsString|StringToNumber"),
        (python, "PyFunc.* keeps or changes state"),
        (unused, "no output depends on the input 'z'"),
    ],
)
def test_what_cannot_be_equal_is_refused_by_the_name_of_the_op(
    build: Callable[[], Any], told: str
) -> None:
    with pytest.raises(ModelError, match=told):
        sojourn.open(build, engine="onnxruntime")


@needs_engines
def test_the_fastest_falls_back_to_tensorflow_and_says_why(heard: list[events.Event]) -> None:
    with sojourn.open(noise, engine="fastest") as session:
        assert session.engine.startswith("tensorflow: onnxruntime ")
        assert "draws random numbers" in session.engine
        assert session.run("y", {"x": X}).shape == X.shape
    [refused] = [event for event in heard if event.kind == "engine.refused"]
    assert "RandomUniform" in refused.detail["why"]


@needs_engines
def test_outputs_that_hardly_vary_prove_nothing(saved: Path) -> None:
    with pytest.raises(ModelError, match="'y' hardly varies, which proves nothing: give samples="):
        sojourn.open(constant, engine="litert")
    samples = [{"x": X * 10.0**n} for n in (0, 9)]
    with sojourn.open(constant, engine="litert", samples=samples) as session:
        assert np.allclose(session.run("y", {"x": X}), X * 1e-9 + 1)


@needs_engines
def test_a_difference_beyond_the_tolerance_is_refused(saved: Path) -> None:
    with pytest.raises(ModelError, match=r"differs by .*, and 1e-12 is allowed"):
        sojourn.open(saved, engine="onnxruntime", tolerance=1e-12)


def test_engines_that_cannot_be_had_are_refused_at_once(saved: Path, tmp_path: Path) -> None:
    for options, told in (
        ({"engine": "torch"}, "engine must be one of tensorflow, onnxruntime, litert, fastest"),
        ({"engine": "litert", "isolation": "inline"}, "an inline session runs on TensorFlow"),
        ({"engine": "litert", "untrusted": True}, "an untrusted model runs on TensorFlow"),
        ({"engine": "litert", "tolerance": 2}, "tolerance must be between 0 and 1"),
        ({"samples": []}, "samples=, tolerance= and shadow= are for another"),
    ):
        with pytest.raises(ValueError, match=told):
            sojourn.open(saved, **options)
    onnx = tmp_path / "m.onnx"
    onnx.write_bytes(b"\x08\x09:")
    with pytest.raises(ModelError, match="an ONNX model is run by onnxruntime, not by litert"):
        sojourn.open(onnx, engine="litert")


def test_a_folder_that_cannot_be_written_to_is_reported(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cache.FOLDER, str(tmp_path / "file"))
    with pytest.raises(ModelError, match="SOJOURN_CACHE names another folder"):
        sojourn.open(saved, engine="litert")


def no_pause() -> None:
    raise AssertionError("no other process converts it")


def test_the_oldest_entries_go_when_there_is_too_much(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "MOST_BYTES", 2500)
    for n in range(4):
        with cache.NewEntry(f"{n:064}", no_pause) as entry:
            (entry.path / "model.onnx").write_bytes(bytes(1000))
            entry.keep(Examined([], [], []))
        os.utime(own_cache / f"sojourn-{n:064}", (n, n))
    assert len(list(own_cache.iterdir())) == 2
    assert cache.find(f"{0:064}") is None
    assert cache.find(f"{3:064}") is not None


# The command


@needs_engines
def test_the_command_shows_what_every_engine_makes_of_a_model(saved: Path, own_cache: Path) -> None:
    from sojourn.cli.main import main

    told = CliRunner().invoke(main, ["convert", str(saved), "--to", "litert", "--json"])
    assert told.exit_code == 0, told.output
    [candidate] = json.loads(told.output)["candidates"]
    assert candidate["engine"] == "litert"
    assert candidate["refusal"] == ""
    assert os.path.isfile(os.path.join(json.loads(told.output)["folder"], candidate["file"]))
    assert candidate["checks"] > 2
    np.savez(own_cache.parent / "one.npz", x=X)
    np.savez(own_cache.parent / "two.npz", x=X * 2)
    words = [f"--samples={own_cache.parent / name}.npz" for name in ("one", "two")]
    told = CliRunner().invoke(main, ["convert", str(saved), "--to", "litert", "--json", *words])
    assert json.loads(told.output)["candidates"][0]["checks"] == 2
    shown = CliRunner().invoke(main, ["convert", str(saved), "--to", "litert"])
    assert "agrees" in shown.output
    assert CliRunner().invoke(main, ["convert", "--clear"]).exit_code == 0


def test_the_command_says_what_it_does_not_take(tmp_path: Path) -> None:
    from sojourn.cli.main import main

    onnx, samples = tmp_path / "m.onnx", tmp_path / "samples.npz"
    onnx.write_bytes(b"\x08\x09:")
    samples.write_bytes(b"no archive")
    for words, code, told in (
        ([str(onnx), "--to", "onnxruntime"], 1, "is run by onnxruntime as it is: nothing is conv"),
        ([str(onnx)], 1, "an ONNX model is run by onnxruntime, not by fastest"),
        ([str(tmp_path / "none")], 1, "none"),
        ([str(onnx), "--tolerance", "2"], 2, "2.0 is not in the range 0<x<1"),
        ([str(onnx), "--samples", str(samples)], 2, "samples.npz is not an .npz file of arrays"),
        ([], 2, "Missing argument 'PATH'"),
    ):
        shown = CliRunner().invoke(main, ["convert", *words])
        assert (shown.exit_code, told in shown.output) == (code, True), shown.output


# Decisions


def test_floats_agree_by_the_largest_magnitude_and_integers_exactly() -> None:
    one = {"y": np.array([1000.0, 1e-6], np.float32), "n": np.array([1, 2])}
    worst, wrong = proof.difference(one, {**one, "y": one["y"] + np.float32(1e-3)})
    assert (wrong, round(worst, 7)) == ("", 1e-6)
    for other, told in (
        ({**one, "n": np.array([1, 3])}, "'n' has 1 other values"),
        ({**one, "n": one["n"].astype(np.int32)}, "'n' is int32"),
        ({**one, "y": one["y"][:1]}, "'y' is float32[1] instead of float32[2]"),
        ({**one, "y": np.array([np.nan, 0], np.float32)}, "'y' is finite in other places"),
        ({"y": one["y"]}, "it gives ['y'] instead of ['y', 'n']"),
    ):
        assert told in proof.difference(one, other)[1]
    same = {"y": np.array([np.nan, np.inf, 1.0], np.float32)}
    assert proof.difference(same, same) == (0.0, "")


def test_the_tolerance_grows_with_the_noise_of_tensorflow_but_not_without_end() -> None:
    assert proof.tolerance(0.0) == proof.LEAST_TOLERANCE
    assert proof.tolerance(1e-5) == pytest.approx(8e-5)
    assert proof.tolerance(1.0) == proof.MOST_TOLERANCE


def test_inputs_follow_the_signature_and_are_the_same_each_time() -> None:
    signature = Signature(
        {
            "image": TensorSpec("float32", (None, 4, 4)),
            "ids": TensorSpec("int64", (None, None)),
            "flag": TensorSpec("bool", ()),
        }
    )
    made = list(generated(signature))
    assert sorted({batch for batch, _ in made}) == [*BATCHES, LARGE_BATCH, MANY_ROWS]
    for (batch, feeds), (_, again) in zip(made, generated(signature), strict=True):
        assert feeds["image"].shape == (batch, 4, 4)
        assert feeds["ids"].shape == (batch, 21 if batch == 3 else 16)
        assert all(np.array_equal(feeds[name], again[name]) for name in feeds)
    for spec in (TensorSpec("string", (1,)), TensorSpec("float32", None)):
        with pytest.raises(ModelError, match="give samples="):
            list(generated(Signature({"x": spec})))


def test_only_a_clear_win_that_loses_nowhere_is_a_reason_to_switch() -> None:
    def chosen(**ratios: dict[int, float]) -> tuple[str, ...]:
        found = [
            Candidate(engine=name, version="1", ratios=r, held_bytes=60)
            for name, r in ratios.items()
        ]
        return tuple(use.engine for use in fastest(Examined(found, [], [], held_bytes=60)))

    assert chosen(litert={1: 0.9, 16: 0.8}) == ()
    assert chosen(litert={1: 1.0, 16: 0.5}) == ("litert",)
    assert chosen(litert={1: 0.5, 16: 1.2}, onnxruntime={1: 0.9, 16: 0.9}) == ()
    assert chosen(onnxruntime={1: 0.5, 16: 0.5}, litert={1: 0.3, 16: 0.6}) == ("litert",)
    told = str(Candidate(engine="litert", version="1", ratios={1: 0.3, 16: 0.6}))
    assert told.startswith("litert 1: 3.3x faster than tensorflow at batch 1")
