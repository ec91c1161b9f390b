"""Real models in the sandbox: honest ones run as ever, hostile ones touch nothing.

One process imports TensorFlow and runs nothing; every stay below is a fork of it, as in a zygote.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sojourn.process import sandbox


def _stay(act: Callable[..., Any], *arguments: Any, readable: tuple[str, ...] | None) -> Any:
    """The value of `act(*arguments)` in a fork; sandboxed if `readable` says what it may read."""
    answer, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if readable is not None:
                sandbox.apply(sandbox.Policy(readable))
            try:
                told = act(*arguments)
            except Exception as error:
                told = type(error).__name__
            os.write(say, json.dumps(told).encode())
        finally:
            os._exit(0)
    os.close(say)
    with os.fdopen(answer, "rb") as pipe:
        text = pipe.read().decode()
    status = os.waitpid(pid, 0)[1]
    return json.loads(text) if text else f"died with {status}"


def build(folder: str) -> None:
    """An honest SavedModel, a Keras file, and one whose init op writes a file when it is loaded."""
    import keras
    import tensorflow as tf

    v1 = tf.compat.v1
    for name, hostile in (("honest", False), ("hostile", True)):
        with tf.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder(tf.float32, [None, 3], name="x")
            w = v1.get_variable("w", [3, 2], initializer=v1.ones_initializer())
            y = tf.matmul(x, w, name="y")
            session.run(v1.global_variables_initializer())
            builder = v1.saved_model.Builder(f"{folder}/{name}")
            builder.add_meta_graph_and_variables(
                session,
                ["serve"],
                {"serving_default": v1.saved_model.predict_signature_def({"x": x}, {"y": y})},
                main_op=tf.io.write_file(f"{folder}/pwned", "pwned") if hostile else None,
            )
            builder.save()
    model = keras.Sequential(
        [keras.layers.Input((3,)), keras.layers.Dense(2, kernel_initializer="ones")]
    )
    model.save(f"{folder}/honest.keras")


def load_and_run(path: str) -> Any:
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.saved_model.load(session, ["serve"], path)
        return session.run("y:0", {"x:0": [[1, 2, 3]]}).tolist()


def load_keras(path: str) -> Any:
    import keras
    import numpy

    return keras.models.load_model(path)(numpy.ones((1, 3))).numpy().tolist()


def compile_with_xla() -> Any:
    import tensorflow as tf

    @tf.function(jit_compile=True, autograph=False)
    def squares(x: Any) -> Any:
        return tf.reduce_sum(x * x)

    return float(squares(tf.ones([10])))


def graph_that_touches(what: str, path: str) -> Any:
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        ops = {
            "read": lambda: tf.io.read_file(path),
            "write": lambda: tf.io.write_file(path, "pwned"),
            "list": lambda: tf.io.matching_files(path),
            "print": lambda: tf.raw_ops.PrintV2(input="pwned", output_stream=f"file://{path}"),
            "save": lambda: tf.raw_ops.SaveV2(
                prefix=path, tensor_names=["x"], shape_and_slices=[""], tensors=[tf.ones([3])]
            ),
        }
        value = session.run(ops[what]())
        return value.tolist() if what == "list" else str(value)


def main(folder: str) -> None:
    importlib.import_module("tensorflow")
    importlib.import_module("keras")
    secret, hostile = f"{folder}/secret", f"{folder}/hostile"
    Path(secret).write_text("the secret")
    told: dict[str, Any] = {"build": _stay(build, folder, readable=None)}
    for name, act, path in (
        ("honest", load_and_run, f"{folder}/honest"),
        ("keras", load_keras, f"{folder}/honest.keras"),
        ("hostile", load_and_run, hostile),
    ):
        told[name] = _stay(act, path, readable=(path,))
    told["wrote at load"] = os.path.exists(f"{folder}/pwned")
    told["xla"] = _stay(compile_with_xla, readable=())
    for what in ("read", "write", "list", "print", "save"):
        path = secret if what == "read" else f"{folder}/*" if what == "list" else f"{folder}/new"
        told[what] = _stay(graph_that_touches, what, path, readable=())
    told["environ"] = _stay(graph_that_touches, "read", "/proc/self/environ", readable=())
    told["left"] = sorted(os.listdir(folder))
    # The same attacks in the open, to know that they are attacks.
    told["hostile, unprotected"] = _stay(load_and_run, hostile, readable=None)
    told["wrote at load, unprotected"] = os.path.exists(f"{folder}/pwned")
    told["read, unprotected"] = _stay(graph_that_touches, "read", secret, readable=None)
    print(json.dumps(told))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    code = "import sys, test_sandbox_tensorflow as t; t.main(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path_factory.mktemp("models"))],
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parent),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "OPENBLAS_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_honest_models_load_and_run_as_ever(told: dict[str, Any]) -> None:
    assert told["honest"] == [[6.0, 6.0]]
    assert told["keras"] == [[3.0, 3.0]]
    assert told["xla"] == 10.0


def test_an_init_op_that_writes_a_file_at_load_is_stopped(told: dict[str, Any]) -> None:
    assert told["hostile"] == "PermissionDeniedError"
    assert not told["wrote at load"]
    assert told["wrote at load, unprotected"]
    assert told["hostile, unprotected"] == [[6.0, 6.0]]


@pytest.mark.parametrize("what", ["read", "environ", "write", "save"])
def test_ops_that_read_or_write_other_files_get_tensorflows_own_error(
    told: dict[str, Any], what: str
) -> None:
    assert told[what] == "PermissionDeniedError"
    assert "the secret" in told["read, unprotected"]


def test_ops_that_swallow_their_errors_still_touch_nothing(told: dict[str, Any]) -> None:
    assert told["list"] in ([], "PermissionDeniedError")
    assert told["left"] == ["honest", "honest.keras", "hostile", "secret"]
