"""Writes a SavedModel that takes serialized examples, and one that takes numbers, in a worker."""

from __future__ import annotations

from typing import Any


def save(folder: str) -> None:
    """`folder/numbers/1` and `/2` (x to y, and another signature), `folder/examples/1`."""
    import tensorflow as tf

    class Numbers(tf.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = tf.Variable(factor)

        @tf.function(input_signature=[tf.TensorSpec([None, 2], name="x")])
        def scale(self, x: Any) -> Any:
            return {"y": x * self.factor}

        @tf.function(
            input_signature=[
                tf.TensorSpec([None], tf.string, "words"),
                tf.TensorSpec([None], tf.int64, "times"),
            ]
        )
        def count(self, words: Any, times: Any) -> Any:
            return {"words": words, "letters": tf.cast(tf.strings.length(words), tf.int64) * times}

    for version, factor in ((1, 2.0), (2, 3.0)):
        module = Numbers(factor)
        signatures = {"serving_default": module.scale, "count": module.count}
        tf.saved_model.save(module, f"{folder}/numbers/{version}", signatures)

    features = {"x": tf.io.FixedLenFeature([2], tf.float32)}
    examples = tf.TensorSpec([None], tf.string, "inputs")

    class Examples(tf.Module):
        @tf.function(input_signature=[examples])
        def classify(self, inputs: Any) -> Any:
            x = tf.io.parse_example(inputs, features)["x"]
            labels = tf.tile(tf.constant([["left", "right"]]), [tf.shape(x)[0], 1])
            return {"classes": labels, "scores": tf.nn.softmax(x)}

        @tf.function(input_signature=[examples])
        def regress(self, inputs: Any) -> Any:
            return {"outputs": tf.reduce_sum(tf.io.parse_example(inputs, features)["x"], axis=1)}

    module = Examples()
    signatures = {"serving_default": module.classify, "sum": module.regress}
    tf.saved_model.save(module, f"{folder}/examples/1", signatures)
