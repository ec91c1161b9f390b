"""Two engines for one model: by the number of rows, or one to check the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sojourn
from needed import needs_engines
from sojourn import events
from sojourn.engines import combined, shortage
from sojourn.errors import EngineError
from sojourn.session.conversion import converting, trying
from sojourn.session.conversion.candidates import Candidate, Examined
from sojourn.session.conversion.choosing import Use, fastest, words_for
from sojourn.session.listing import Lister
from sojourn.session.opening import Blueprint
from sojourn.values import TensorSpec, caller

pytestmark = pytest.mark.usefixtures("own_cache")
X = np.random.default_rng(1).normal(size=(9, 16)).astype(np.float32)


@pytest.fixture
def heard() -> Iterator[list[events.Event]]:
    found: list[events.Event] = []
    stop = events.subscribe(found.append)
    yield found
    stop()


def dense() -> Any:
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 16], name="x")
    w = v1.get_variable("w", [16, 4], initializer=v1.random_normal_initializer(seed=1))
    y = tf.matmul(x, w)  # of tanh, which is 1 from somewhere on, the largest is not the same
    return {"x": x}, {"y": tf.nn.tanh(y), "best": tf.argmax(y, axis=1)}


def largest() -> Any:
    """Of numbers both engines find the same; where one is none, they do not."""
    import tensorflow as tf

    x = tf.compat.v1.placeholder(tf.float32, [None, 16], name="x")
    return {"x": x}, {"y": tf.reduce_max(x, axis=1)}


def sliced() -> Any:
    """ONNX Runtime cuts it off where TensorFlow refuses it."""
    import tensorflow as tf

    return tf.function(
        lambda x, at: {"y": tf.slice(x, [at], [4]) * 2.0},
        input_signature=[
            tf.TensorSpec([None], tf.float32, name="x"),
            tf.TensorSpec([], tf.int32, name="at"),
        ],
    )


# Decisions


def examined(held: int = 100, **ratios: dict[int, float]) -> Examined:
    found = [
        Candidate(engine=name, version="1", ratios=r, held_bytes=50, worst=1e-7, tolerance=1e-5)
        for name, r in ratios.items()
    ]
    return Examined(found, [], [], held_bytes=held)


def test_two_engines_are_kept_where_each_wins_clearly_for_its_rows() -> None:
    found = examined(litert={1: 0.1, 4: 0.2, 64: 0.7}, onnxruntime={1: 0.5, 4: 0.5, 64: 0.2})
    uses = fastest(found)
    assert uses == (Use("litert", 16), Use("onnxruntime"))
    assert words_for(found, uses) == (
        "litert 1 up to 16 rows, onnxruntime 1 above: 10.0x faster than tensorflow at batch 1, "
        "5.0x faster than tensorflow at batch 64; both hold 100 B "
        "(worst difference 1e-07, tolerance 1e-05)"
    )


def test_tensorflow_itself_may_be_one_of_the_two() -> None:
    found = examined(held=400, litert={1: 0.1, 64: 1.4})
    assert fastest(found) == (Use("litert", 8), Use("tensorflow"))
    assert "litert 1 up to 8 rows, tensorflow above" in words_for(found, fastest(found))


def test_a_second_engine_that_gains_little_or_holds_much_is_not_kept() -> None:
    close = {"litert": {1: 0.30, 64: 0.32}, "onnxruntime": {1: 0.35, 64: 0.28}}
    assert fastest(examined(**close)) == (Use("litert"),)
    apart = {"litert": {1: 0.1, 64: 0.7}, "onnxruntime": {1: 0.5, 64: 0.2}}
    assert len(fastest(examined(held=67, **apart))) == 2
    assert len(fastest(examined(held=66, **apart))) == 1
    assert fastest(examined(litert={1: 0.9, 64: 1.1})) == ()
    assert len(fastest(examined(**apart), alone=True)) == 1


@pytest.mark.parametrize("which", ["right", "quick"])
def test_in_shadow_mode_want_of_memory_is_no_disagreement(
    which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shortage, "_limit_bytes", 2**30)
    short = EngineError("Failed to allocate memory for requested buffer of size 4096")

    def run(arrays: Any) -> Any:
        return [X]

    def run_short(arrays: Any) -> Any:
        raise short

    runs = {"right": run, "quick": run} | {which: run_short}
    engine = object.__new__(combined.ShadowedEngine)
    engine.has_disagreed, engine._steps, engine._every = False, itertools.count(), 1
    step = object.__new__(combined._Shadowed)
    step._runs, step._engine, step._names = [runs["right"], runs["quick"]], engine, ["y"]
    if which == "quick":
        assert step.run([]) == [X]
    else:
        with pytest.raises(EngineError, match="Failed to allocate"):
            step.run([])
    assert not engine.has_disagreed


# Sessions


def choose(monkeypatch: pytest.MonkeyPatch, *uses: Use) -> None:
    monkeypatch.setattr(converting, "fastest", lambda found, alone: uses)


@needs_engines
@pytest.mark.parametrize("other", ["onnxruntime", "tensorflow"])
def test_a_session_on_two_engines_answers_as_on_one(
    other: str, monkeypatch: pytest.MonkeyPatch, heard: list[events.Event]
) -> None:
    with sojourn.open(dense, seed=1) as session:
        expected, signature = session.run(None, {"x": X}), session.signature
    choose(monkeypatch, Use("litert", 4), Use(other))
    with sojourn.open(dense, seed=1, engine="fastest") as session:
        assert session.engine.startswith("litert ")
        assert f" up to 4 rows, {other}" in session.engine
        assert session.signature == signature
        for rows in (1, 4, 5, 9):
            got = session.run(None, {"x": X[:rows]})
            assert np.allclose(got["y"], expected["y"][:rows], atol=1e-6)
            assert np.array_equal(got["best"], expected["best"][:rows])
        assert session.run("best", {"x": X}).dtype == np.int64
        with open(f"/proc/{session.pid}/maps") as maps:
            assert ("tensorflow/python" in maps.read()) == (other == "tensorflow")
        [listed] = [one for one in Lister().list() if one.worker_pid == session.pid]
        assert listed.engine == session.engine.partition(":")[0]
    [ready] = [e for e in heard if e.kind == "session.ready" and e.session == session.name]
    assert ready.detail["engine"] == session.engine
    [chosen] = [event for event in heard if event.kind == "engine.chosen"]
    assert chosen.detail["engine"] == f"litert, {other}"
    assert session.receipt.clean


@needs_engines
def test_in_shadow_mode_answers_that_agree_change_nothing(heard: list[events.Event]) -> None:
    with sojourn.open(dense, seed=1) as session:
        expected = session.run("y", {"x": X})
    with sojourn.open(dense, seed=1, engine="litert", shadow=0.5) as session:
        for _ in range(5):
            assert np.allclose(session.run("y", {"x": X}), expected, atol=1e-6)
        assert session.engine.startswith("litert ")
    assert not [event for event in heard if event.kind == "engine.disagreed"]
    assert session.receipt.clean


@needs_engines
def test_in_shadow_mode_a_disagreement_is_an_event_and_tensorflow_computes_from_then_on(
    heard: list[events.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trying, "NOT_FINITE", ())  # which would show that they disagree
    odd = X.copy()
    odd[0, 3] = np.nan
    with sojourn.open(largest, engine="litert") as session:
        assert not np.isnan(session.run("y", {"x": odd})[0])
    with sojourn.open(largest, engine="litert", shadow=1.0) as session:
        assert np.array_equal(session.run("y", {"x": X}), X.max(axis=1))
        for _ in range(2):
            assert np.isnan(session.run("y", {"x": odd})[0])  # as TensorFlow has it
        assert np.array_equal(session.run("y", {"x": X}), X.max(axis=1))
        assert session.engine.startswith("tensorflow: litert ")
        assert session.engine.endswith("'y' is finite in other places")
        [listed] = [one for one in Lister().list() if one.worker_pid == session.pid]
        assert listed.engine == "tensorflow"
    [told] = [event for event in heard if event.kind == "engine.disagreed"]
    assert (told.session, told.detail["engine"]) == (session.name, "tensorflow")
    assert "'y' is finite in other places" in told.detail["why"]
    assert session.receipt.clean


@needs_engines
def test_in_shadow_mode_an_answer_to_what_tensorflow_refuses_is_a_disagreement(
    heard: list[events.Event],
) -> None:
    x = np.arange(16, dtype=np.float32)
    samples = [{"x": x * n, "at": np.int32(n)} for n in (3, 5)]
    options = {"samples": samples, "engine_options": {"threads": 1}}
    with sojourn.open(sliced, engine="onnxruntime", shadow=0.5, **options) as session:
        for _ in range(2):
            # TensorFlow's own error if this process has it loaded.
            with pytest.raises(Exception, match=r"Expected size\[0\] in \[0, 1\], but got 4"):
                session.run("y", {"x": x, "at": np.int32(15)})
        assert session.run("y", {"x": x, "at": np.int32(1)}).tolist() == [2.0, 4.0, 6.0, 8.0]
        assert session.engine.startswith("tensorflow: onnxruntime ")
    [told] = [event for event in heard if event.kind == "engine.disagreed"]
    assert "it answers what TensorFlow refuses" in told.detail["why"]


@needs_engines
def test_a_shadow_that_makes_no_sense_is_refused() -> None:
    for options, told in (
        ({"shadow": 0.1}, "samples=, tolerance= and shadow= are for another engine="),
        ({"shadow": 0, "engine": "litert"}, "shadow must be a fraction of the steps"),
        ({"shadow": 2, "engine": "litert"}, "shadow must be a fraction of the steps"),
        (
            {"shadow": 1, "engine": "litert", "restart": "from-checkpoint"},
            "shadow= is not for a session with restart=",
        ),
    ):
        with pytest.raises(ValueError, match=told):
            sojourn.open(dense, **options)
    for name in ("shadow", "tolerance"):
        with pytest.raises(TypeError, match=f"{name} must be a number, not 'much'"):
            sojourn.open(dense, engine="litert", **{name: "much"})


@needs_engines
def test_the_number_of_threads_is_chosen_by_timing_unless_it_is_given() -> None:
    for options, expected in (({}, (None, 1)), ({"threads": 3}, (3,))):
        blueprint = Blueprint(dense, seed=1, engine="litert", engine_options=options)
        [candidate] = blueprint.examine(caller()).candidates
        assert candidate.agrees
        assert candidate.threads in expected


@needs_engines
def test_a_model_is_tried_with_many_rows_too_if_that_takes_little() -> None:
    [candidate] = Blueprint(dense, seed=1, engine="onnxruntime").examine(caller()).candidates
    assert sorted(candidate.ratios) == [1, 3, 16, 64, 1024]


def test_a_scalar_of_an_input_of_any_rank_is_one_row() -> None:
    def plan(name: str) -> Any:
        facts = {"adoptable": True, "prints": False, "may_wait": False}
        inputs = [TensorSpec("float32", None)]
        return SimpleNamespace(
            run=lambda arrays: [name], inputs=inputs, outputs=[], slots=[], **facts
        )

    both = combined._ByRows([plan("few"), plan("many")], 6)
    assert both.run([np.array(1.0)]) == both.run([np.ones((6, 2))]) == ["few"]
    assert both.run([np.ones((7, 2))]) == ["many"]
