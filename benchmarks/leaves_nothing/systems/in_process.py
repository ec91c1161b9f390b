"""Systems that keep the model in the owner's own process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from adapter import Call, System
from workload import Model, build, small, wide


class RawTensorFlow(System):
    name = "raw TensorFlow"
    about = "`with tf.Graph().as_default(), tf.compat.v1.Session()`"
    packages = ("tensorflow-cpu",)

    @contextmanager
    def stay(self, model: Model) -> Iterator[Call]:
        import tensorflow as tf

        v1 = tf.compat.v1
        with v1.Graph().as_default(), v1.Session() as session:
            inputs, outputs = build(model)
            session.run(v1.global_variables_initializer())
            x, y = inputs["x"], outputs["y"]
            yield lambda value: session.run(y, {x: value})


class KerasClearSession(System):
    name = "Keras, clear_session"
    about = "a model called with `model(x, training=False)`; `del model`, `clear_session()`"
    packages = ("keras", "tensorflow-cpu")

    @contextmanager
    def stay(self, model: Model) -> Iterator[Call]:
        import keras

        inputs = keras.Input((model.inputs,))
        initial = keras.initializers.RandomUniform(-0.05, 0.05, seed=1)
        dense = keras.layers.Dense(model.outputs, activation="softmax", kernel_initializer=initial)
        network = keras.Model(inputs, dense(inputs))
        del inputs, dense

        def call(value: np.ndarray, network: Any = network) -> np.ndarray:
            return np.asarray(network(value, training=False))

        yield call
        del call
        del network
        keras.backend.clear_session()


class OnnxRuntime(System):
    name = "ONNX Runtime"
    about = "`InferenceSession(path)`, ended by its last reference: another runtime, inference only"
    packages = ("onnxruntime", "onnx")
    environment = "onnxruntime"

    def prepare(self, folder: Path) -> None:
        for model in (wide(), small()):
            _write_onnx(model, folder / _file_of(model))

    @contextmanager
    def stay(self, model: Model) -> Iterator[Call]:
        import onnxruntime

        path = self.prepared / _file_of(model)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        yield lambda value: session.run(["y"], {"x": value})[0]  # its last reference closes it


def _file_of(model: Model) -> str:
    return f"{model.inputs}x{model.outputs}.onnx"


def _write_onnx(model: Model, path: Path) -> None:
    """Write the same layer: two operators and a softmax, with its weights in the file."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(1).random((model.inputs, model.outputs), dtype=np.float32)
    weights = [
        numpy_helper.from_array(random * np.float32(0.1) - np.float32(0.05), "w"),
        numpy_helper.from_array(np.zeros(model.outputs, np.float32), "b"),
    ]
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["xw"]),
            helper.make_node("Add", ["xw", "b"], ["z"]),
            helper.make_node("Softmax", ["z"], ["y"]),
        ],
        "dense",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, model.inputs])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, model.outputs])],
        weights,
    )
    opset = helper.make_opsetid("", 17)
    made = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    onnx.save(made, path)
