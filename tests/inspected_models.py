"""Real models to inspect, made by TensorFlow and Keras themselves."""

from __future__ import annotations

import importlib
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

import sojourn


def build(folder: str) -> None:
    """Write every kind of model with TensorFlow itself, in a worker."""
    os.chdir(folder)
    tf: Any = importlib.import_module("tensorflow")
    keras: Any = importlib.import_module("keras")
    h5py: Any = importlib.import_module("h5py")
    v1 = tf.compat.v1
    Path("words.txt").write_text("a\nb\n")

    class Lookup(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            words = tf.lookup.TextFileInitializer("words.txt", tf.string, -2, tf.int64, -1)
            self.table = tf.lookup.StaticHashTable(words, -1)
            self.w = tf.Variable(tf.ones([3, 2]), name="w")

        @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, "x")])
        def serve(self, x: Any) -> Any:
            return {"y": x @ self.w, "n": self.table.size()}

    class Hostile(tf.Module):  # type: ignore[misc]
        @tf.function(input_signature=[tf.TensorSpec([], tf.string, "path")])
        def read(self, path: Any) -> Any:
            return {"content": self.inner(path)}

        @tf.function
        def inner(self, path: Any) -> Any:
            tf.raw_ops.PrintV2(input="x", output_stream="file:///etc/motd")
            tf.raw_ops.PrintV2(input="x", output_stream="stderr")
            return tf.py_function(lambda p: p, [tf.io.read_file(path)], tf.string)

    lookup = Lookup()
    tf.saved_model.save(lookup, "honest", signatures=lookup.serve)
    hostile = Hostile()
    tf.saved_model.save(hostile, "hostile", signatures=hostile.read)

    with tf.Graph().as_default() as graph, v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        w = v1.get_variable("w", [3, 2], initializer=v1.ones_initializer())
        y = tf.matmul(x, w, name="y")
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, "checkpoint/model.ckpt", global_step=7)
        frozen = v1.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), ["y"])
        Path("frozen.pb").write_bytes(frozen.SerializeToString())
        save = tf.raw_ops.SaveV2(
            prefix="/tmp/x", tensor_names=["x"], shape_and_slices=[""], tensors=[w]
        )
        builder = v1.saved_model.Builder("init_writes")
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {"predict": v1.saved_model.predict_signature_def({"x": x}, {"y": y})},
            main_op=tf.group(tf.io.write_file("/tmp/pwned", "x"), save),
        )
        builder.save()

    @keras.saving.register_keras_serializable("mine")  # type: ignore[untyped-decorator]
    class Own(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return x

    layers = keras.layers
    plain = keras.Sequential([layers.Input((3,)), layers.Dense(2), layers.Dense(1)])
    plain.save("plain.keras")
    plain.save("plain.h5")
    odd = keras.Sequential([layers.Input((3,)), layers.Lambda(lambda x: x + 1), Own()])
    odd.save("lambda.keras")
    odd.save("lambda.h5")
    plain.save_weights("just.weights.h5")
    with h5py.File("external.h5", "w") as file:
        file["out"] = h5py.ExternalLink("/etc/passwd", "/x")


@pytest.fixture(scope="session")
def models(zygote: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the models. The first test module that asks writes them."""
    folder = tmp_path_factory.getbasetemp() / "inspected"
    if folder.exists():
        return folder
    folder.mkdir()
    sojourn.isolated(build)(str(folder))
    return folder


def keras_file(path: Path, config: Any, **members: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", config if isinstance(config, str) else json.dumps(config))
        for name, content in members.items():
            archive.writestr(name, content)
    return path
