"""Writes every kind of model file, and the outputs of TensorFlow and Keras for some inputs.

Called in a worker, so that the tests need no TensorFlow in their process.
"""

from __future__ import annotations

import os
import pickle
from typing import Any

import numpy as np

Cases = dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, np.ndarray]]]


def main(folder: str) -> None:
    import keras

    os.chdir(folder)
    keras.utils.set_random_seed(7)
    cases: Cases = {}  # name -> path, options for open, inputs, expected outputs
    write_keras(cases)
    write_tensorflow_2(cases)
    write_tensorflow_1(cases)
    write_damaged()
    with open("cases.pickle", "wb") as file:
        pickle.dump(cases, file)


def write_keras(cases: Cases) -> None:
    import keras
    import tensorflow as tf
    from keras import layers

    draw = np.random.default_rng(1)

    def floats(*shape: int) -> np.ndarray:
        return draw.normal(size=shape).astype(np.float32)

    def add(name: str, model: Any, inputs: dict[str, Any], outputs: list[str], *kinds: str) -> None:
        given = [tf.constant(value) for value in inputs.values()]
        got = tf.nest.flatten(model(given[0] if len(given) == 1 else given, training=False))
        expected = dict(zip(outputs, (np.asarray(value) for value in got), strict=True))
        for kind in kinds:
            model.save(f"{name}{kind}")
            cases[f"{name}{kind}"] = (f"{name}{kind}", {}, inputs, expected)
        model.export(f"{name}_saved", verbose=False)
        signature = tf.saved_model.load(f"{name}_saved").signatures["serving_default"]
        names = list(signature.structured_input_signature[1])
        renamed = dict(zip(sorted(names), (inputs[k] for k in sorted(inputs)), strict=True))
        told = signature(**{k: tf.constant(v) for k, v in renamed.items()})
        cases[f"{name}_saved"] = (
            f"{name}_saved",
            {},
            renamed,
            {k: np.asarray(v) for k, v in told.items()},
        )

    dense = keras.Sequential(
        [layers.Input((8,), name="x"), layers.Dense(16, "relu"), layers.Dense(3, name="y")]
    )
    add("dense", dense, {"x": floats(4, 8)}, ["y"], ".keras", ".h5")
    dense.save_weights("only.weights.h5")

    conv = keras.Sequential(
        [
            layers.Input((12, 12, 3), name="image"),
            layers.Conv2D(8, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Dropout(0.5),
            layers.GlobalAveragePooling2D(),
            layers.Dense(4, "softmax", name="scores"),
        ]
    )
    add("conv", conv, {"image": floats(2, 12, 12, 3)}, ["scores"], ".keras")

    steps = keras.Input((None, 5), name="steps")
    hidden = layers.LSTM(7, return_sequences=True)(steps)
    recurrent = keras.Model(steps, layers.Dense(2, name="last")(layers.GRU(6)(hidden)))
    add("recurrent", recurrent, {"steps": floats(3, 9, 5)}, ["last"], ".keras")

    words = keras.Input((None,), dtype="string", name="words")
    lookup = layers.StringLookup(vocabulary=["cat", "dog", "fish"])
    vectors = layers.Embedding(4, 6)(lookup(words))
    text = keras.Model(words, layers.GlobalAveragePooling1D(name="meaning")(vectors))
    phrases = np.array([["cat", "dog"], ["fish", "bird"]], object)
    add("text", text, {"words": phrases}, ["meaning"], ".keras")

    left = keras.Input((4,), name="left")
    right = keras.Input((3,), dtype="int32", name="right")
    joined = layers.Concatenate()([left, layers.Flatten()(layers.Embedding(10, 2)(right))])
    several = keras.Model(
        [left, right], [layers.Dense(2, name="first")(joined), layers.Dense(5, name="second")(left)]
    )
    numbers = np.array([[1, 2, 3], [4, 5, 6]], np.int32)
    add("several", several, {"left": floats(2, 4), "right": numbers}, ["first", "second"], ".keras")


def write_tensorflow_2(cases: Cases) -> None:
    import tensorflow as tf

    class Scaler(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = tf.Variable(3.0, name="factor")
            self.words = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(["one", "two"], [1, 2]), -1
            )
            self.draws = tf.random.Generator.from_seed(5)

        @tf.function(input_signature=[tf.TensorSpec([None, None], name="x")])
        def scale(self, x: Any) -> Any:
            return {"y": x * self.factor, "total": tf.reduce_sum(x, axis=1)}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="word")])
        def number(self, word: Any) -> Any:
            return {"number": self.words.lookup(word)}

        @tf.function(input_signature=[tf.TensorSpec([], name="by")])
        def grow(self, by: Any) -> Any:
            return {"factor": self.factor.assign_add(by), "draw": self.draws.normal([2])}

    scaler = Scaler()
    tf.saved_model.save(
        scaler, "scaler", {"scale": scaler.scale, "number": scaler.number, "grow": scaler.grow}
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    expected = {"y": x * 3, "total": x.sum(1)}
    cases["dynamic shapes"] = ("scaler", {"signature": "scale"}, {"x": x}, expected)
    word = np.array(["two", "three"], object)
    told = {"number": np.array([2, -1], np.int32)}
    cases["static table"] = ("scaler", {"signature": "number"}, {"word": word}, told)

    flowers = tf.Module()
    flowers.serve = tf.function(
        lambda image: {"probabilities": tf.nn.softmax(image)},
        input_signature=[tf.TensorSpec([None, 3], name="image")],
    )
    tf.saved_model.save(flowers, "models/flowers", flowers.serve)

    bare = tf.Module()
    bare.f = tf.function(lambda x: x + 1, input_signature=[tf.TensorSpec([], name="x")])
    tf.saved_model.save(bare, "no_signatures", signatures={})


def write_tensorflow_1(cases: Cases) -> None:
    import tensorflow as tf

    v1 = tf.compat.v1
    x_value = np.arange(6, dtype=np.float32).reshape(2, 3)
    with v1.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        w = v1.Variable(tf.range(6.0), name="w", use_resource=False)
        b = v1.get_variable("b", initializer=tf.constant([1.0, 2.0]), use_resource=True)
        y = tf.add(tf.matmul(x, tf.reshape(w, [3, 2])), b, name="y")
        v1.assign_add(w, tf.ones([6]), name="grow")
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(tf.constant(["a"]), tf.constant([9.0])), 0.0
        )
        key = v1.placeholder(tf.string, [], name="key")
        tf.identity(table.lookup(key), name="found")
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        expected = {"y": session.run(y, {x: x_value})}
        builder = v1.saved_model.Builder("tf1_saved")
        signature = v1.saved_model.predict_signature_def({"x": x}, {"y": y})
        signatures = {"serving_default": signature}
        builder.add_meta_graph_and_variables(
            session, ["serve"], signatures, main_op=v1.tables_initializer()
        )
        builder.add_meta_graph(["serve", "special"], signatures)
        builder.save()
        v1.train.Saver().save(session, "meta/model.ckpt", global_step=10)
        frozen = v1.graph_util.convert_variables_to_constants(
            session, graph.as_graph_def(), ["y", "found"]
        )
        v1.train.write_graph(frozen, ".", "frozen.pb", as_text=False)
        v1.train.write_graph(frozen, ".", "frozen.pbtxt", as_text=True)
    named = {"inputs": ["x:0"], "outputs": {"y": "y:0"}}
    feeds = {"x": x_value}
    cases["TensorFlow 1 SavedModel"] = ("tf1_saved", {}, feeds, expected)
    cases["SavedModel by tags"] = ("tf1_saved", {"tags": ["serve", "special"]}, feeds, expected)
    cases["frozen"] = ("frozen.pb", named, feeds, expected)
    cases["frozen as text"] = ("frozen.pbtxt", named, feeds, expected)
    cases["meta graph by prefix"] = ("meta/model.ckpt-10", named, feeds, expected)
    cases["meta graph by folder"] = ("meta", named, feeds, expected)


def write_damaged() -> None:
    import shutil

    import tensorflow as tf

    os.mkdir("empty_folder")
    open("empty.keras", "wb").close()
    for source, target in (("dense_saved", "truncated_saved"), ("dense_saved", "no_variables")):
        shutil.copytree(source, target)
    os.truncate("truncated_saved/saved_model.pb", 200)
    shutil.rmtree("no_variables/variables")
    os.mkdir("empty_saved")
    open("empty_saved/saved_model.pb", "wb").close()
    for name in ("dense.keras", "dense.h5"):
        shutil.copy(name, "truncated." + name.partition(".")[2])
        os.truncate("truncated." + name.partition(".")[2], os.path.getsize(name) // 2)
    graph = tf.compat.v1.GraphDef()
    node = graph.node.add()
    node.name, node.op = "mystery", "OpOfAnotherWorld"
    with open("unknown_op.pb", "wb") as file:
        file.write(graph.SerializeToString())
    with open("text.pb", "w") as text:
        text.write("this is no graph")
