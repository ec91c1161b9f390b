"""Writes TensorFlow Lite models. Called in a worker, so that the tests need no TensorFlow."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

WEIGHTS = np.arange(12, dtype=np.float32).reshape(4, 3)


def main(folder: str) -> None:
    import tensorflow as tf

    os.chdir(folder)
    rows = tf.TensorSpec([None, 4], tf.float32)

    class Two(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = tf.Variable(WEIGHTS)

        @tf.function(input_signature=[rows])
        def dense(self, x: Any) -> Any:
            return {"y": x @ self.weights, "rows": tf.shape(x)[0]}

        @tf.function(input_signature=[tf.TensorSpec([2], tf.int32), tf.TensorSpec([2], tf.int32)])
        def add(self, a: Any, b: Any) -> Any:
            return {"sum": a + b}

    class Counter(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = tf.Variable(0.0)

        @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
        def add(self, by: Any) -> Any:
            return {"count": self.count.assign_add(by)}

    class Odd(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([3, 3], tf.float32)])
        def det(self, x: Any) -> Any:
            return {"y": tf.linalg.det(x)}

        @tf.function(input_signature=[tf.TensorSpec([1, 4], tf.float32, name="state")])
        def next(self, state: Any) -> Any:
            return {"state": state * 2.0}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
        def row(self, i: Any) -> Any:
            return {"y": tf.gather(WEIGHTS, i)}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
        def found(self, x: Any) -> Any:
            return {"values": tf.boolean_mask(x, x > 0), "places": tf.where(x > 0), "all": x * 2.0}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)] * 2)
        def same(self, a: Any, b: Any) -> Any:
            return {"same": tf.equal(a, b), "column": tf.reshape(a, [-1, 1])}

    two, counter, odd = Two(), Counter(), Odd()
    write("found", odd, {"found": odd.found})
    write("found_beside", odd, {"found": odd.found, "next": odd.next})
    write("two", two, {"dense": two.dense, "add": two.add})
    write("one", two, {"dense": two.dense})
    write("counter", counter, {"add": counter.add})
    write("words", odd, {"same": odd.same})
    write("words_beside", odd, {"same": odd.same, "next": odd.next})
    write("row", odd, {"row": odd.row})
    write("next", odd, {"next": odd.next})
    write("custom", odd, {"det": odd.det}, allow_custom_ops=True)
    flex = [tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS]
    write("flex", odd, {"det": odd.det}, supported_ops=flex)
    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 4], name="x")
        y = tf.matmul(x, tf.constant(WEIGHTS), name="y")
        converter = v1.lite.TFLiteConverter.from_session(session, [x], [y])
        with open("unsigned.tflite", "wb") as file:
            file.write(converter.convert())


def write(
    name: str, module: Any, signatures: Any, supported_ops: Any = None, **options: Any
) -> None:
    import tensorflow as tf

    tf.saved_model.save(module, name, signatures=signatures)
    converter = tf.lite.TFLiteConverter.from_saved_model(name, signature_keys=list(signatures))
    if supported_ops is not None:
        converter.target_spec.supported_ops = supported_ops
    for option, value in options.items():
        setattr(converter, option, value)
    with open(f"{name}.tflite", "wb") as file:
        file.write(converter.convert())
