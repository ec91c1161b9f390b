"""Writes honest and hostile models into a folder. Runs in a worker, which has TensorFlow."""

from __future__ import annotations

import os
import sys
from typing import Any


def write(folder: str, secret: str) -> None:
    import keras
    import tensorflow as tf

    v1 = tf.compat.v1

    def saved_model(
        name: str, build: Any, main_op: Any = None, x: Any = (tf.float32, [None])
    ) -> None:
        with tf.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder(*x, name="x")
            y = build(x)
            op = main_op() if main_op else None
            builder = v1.saved_model.Builder(os.path.join(folder, name))
            outputs = y if isinstance(y, dict) else {"y": y}
            signature = v1.saved_model.predict_signature_def({"x": x}, outputs)
            builder.add_meta_graph_and_variables(
                session, ["serve"], {"serving_default": signature}, main_op=op
            )
            builder.save()

    def copies(x: Any) -> dict[str, Any]:
        big = tf.fill([2**23], x[0])
        return {f"y{i}": tf.identity(big) for i in range(12)}

    def prints(x: Any) -> Any:
        text = tf.strings.join(["\x1b]0;pwned\x07", tf.strings.reduce_join(tf.fill([x], "a"))])
        with tf.control_dependencies([tf.print(text, output_stream=sys.stdout)]):
            return tf.identity(x)

    def endless() -> Any:
        return tf.while_loop(lambda i: i < 1, lambda i: i * 0, [tf.constant(0)])[0].op

    saved_model("honest", lambda x: x * 2)
    saved_model("reads", lambda x: tf.strings.join([tf.io.read_file(secret), tf.as_string(x[0])]))
    saved_model("reads_any", tf.io.read_file, x=(tf.string, []))
    saved_model(
        "writes", lambda x: x, lambda: tf.io.write_file(os.path.join(folder, "pwned"), "pwned")
    )
    saved_model("copies", copies)
    saved_model("prints", prints, x=(tf.int32, []))
    saved_model("endless", lambda x: x, endless)
    saved_model("giant", lambda x: tf.reduce_sum(tf.ones(tf.cast([x[0], x[0]], tf.int32))))
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Lambda(lambda x: x + 1)])
    model.save(os.path.join(folder, "lambda.keras"))
    model.save(os.path.join(folder, "lambda.h5"))
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.save(os.path.join(folder, "honest.keras"))
    model.save(os.path.join(folder, "honest.h5"))
    for name in ("beside", "beside.meta.old"):
        with tf.Graph().as_default(), v1.Session() as session:
            tf.io.read_file(v1.placeholder(tf.string, [], name="x"), name="y")
            w = v1.get_variable("w", [1])
            session.run(w.initializer)
            v1.train.Saver().save(session, os.path.join(folder, name))
