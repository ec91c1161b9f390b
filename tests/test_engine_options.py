"""`engine_options`: how many threads a step may use, and whether TensorFlow compiles it."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_writer
import sojourn
from sojourn.engines import seeding
from sojourn.kinds import Load
from sojourn.session.engine_options import checked

X = np.ones((1, 4), np.float32)


def product() -> Any:
    import tensorflow as tf

    x = tf.compat.v1.placeholder(tf.float32, [None, 512], name="x")
    w = tf.constant(np.random.default_rng(1).normal(size=(512, 512)), tf.float32)
    return {"x": x}, {"y": tf.nn.relu(tf.matmul(x, w) * 2.0 + 1.0)}


def threads_of(session: Any) -> int:
    return len(os.listdir(f"/proc/{session.pid}/task"))


def test_a_tensorflow_session_has_as_many_threads_as_it_is_given() -> None:
    x = np.random.default_rng(2).normal(size=(256, 512)).astype(np.float32)
    found, counts = {}, {}
    for threads in (1, 6):
        with sojourn.open(product, engine_options={"threads": threads}) as session:
            found[threads] = session.run("y", {"x": x})
            counts[threads] = threads_of(session)
    assert counts[6] - counts[1] >= 2 * (6 - 2)  # within ops, and between them
    assert np.allclose(found[1], found[6], rtol=1e-5)


def test_a_compiled_session_gives_the_same_answers() -> None:
    x = np.random.default_rng(2).normal(size=(3, 512)).astype(np.float32)
    with sojourn.open(product) as session:
        expected = session.run("y", {"x": x})
    with sojourn.open(product, engine_options={"jit_compile": True}) as session:
        assert np.allclose(session.run("y", {"x": x}), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_step_is_compiled_only_if_that_is_asked_for(jit_compile: bool) -> None:
    assert ("_XlaRun" in sojourn.isolated(ops_that_run)(jit_compile)) is jit_compile


def ops_that_run(jit_compile: bool) -> set[str]:
    """Which ops TensorFlow makes of the graph."""
    import tensorflow as tf

    from sojourn.engines.tensorflow import session_config
    from sojourn.kinds import Load

    v1 = tf.compat.v1
    with v1.Graph().as_default():
        _, outputs = product()
        session = v1.Session(config=session_config(Load(kind="graph", jit_compile=jit_compile)))
        told, options = v1.RunMetadata(), v1.RunOptions(output_partition_graphs=True)
        feeds = {"x:0": np.ones((3, 512), np.float32)}
        session.run(outputs, feeds, options=options, run_metadata=told)
    return {node.op for graph in told.partition_graphs for node in graph.node}


@pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="no ONNX Runtime")
def test_onnx_runtime_has_as_many_threads_as_it_is_given(tmp_path: Path) -> None:
    path = tmp_path / "dense.onnx"
    path.write_bytes(onnx_writer.dense())
    found = {}
    for threads in (1, 4):
        with sojourn.open(path, engine_options={"threads": threads}) as session:
            session.run("y", {"x": X})
            found[threads] = threads_of(session)
    assert found[4] - found[1] == 3  # the caller is one of them


def test_options_that_make_no_sense_are_refused_with_what_would(tmp_path: Path) -> None:
    path = tmp_path / "dense.onnx"
    path.write_bytes(onnx_writer.dense())
    for options, kind, told in (
        ({"threads": 0}, ValueError, "threads must be a whole number of at least 1, not 0"),
        ({"threads": 10**9}, ValueError, "threads must be at most 1024, not 1000000000"),
        ({"threads": 1.5}, TypeError, "threads must be a whole number"),
        ({"thread": 1}, ValueError, "may have 'threads' and 'jit_compile', not 'thread'"),
        ({"jit_compile": 1}, TypeError, "jit_compile must be True or False, not 1"),
        ({"jit_compile": True}, ValueError, "jit_compile is for tensorflow, not for onnxruntime"),
        ([("threads", 1)], TypeError, "engine_options must be a mapping"),
    ):
        with pytest.raises(kind, match=told):
            sojourn.open(path, engine_options=options)
    with pytest.raises(ValueError, match="engine_options are for a worker"):
        sojourn.open(product, isolation="inline", engine_options={"threads": 1})
    assert checked(None, "tensorflow", inline=True) == {}


def test_a_model_that_does_without_tensorflow_takes_its_options_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    before = dict(sys.modules)
    seeding.prepare(Load(kind="builder", threads=2))
    assert sys.modules == before
