"""What other engines make of many kinds of models: who converts, who agrees, how fast each is.

Run as `python benchmarks/engines.py [NAME ...]`. Ratios are the time of a step in an isolated
session of the engine by that in an isolated session of TensorFlow, taken in turns; weights are
random, so that nothing is downloaded. A model that is refused by all says why.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from sojourn.session.conversion.cache import FOLDER
from sojourn.session.opening import Blueprint
from sojourn.values import caller, format_bytes


def sequential(
    shape: tuple[int, ...], *layers: Callable[[Any], Any], dtype: str = "float32"
) -> Any:
    import keras

    keras.utils.set_random_seed(1)
    made = [layer(keras.layers) for layer in layers]
    return keras.Sequential([keras.Input(shape, dtype=dtype, name="x"), *made])


def application(name: str, size: int) -> Any:
    import keras

    keras.utils.set_random_seed(1)
    build = getattr(keras.applications, name)
    return build(weights=None, input_shape=(size, size, 3), classifier_activation=None)


def transformer() -> Any:
    import keras
    from keras import layers

    keras.utils.set_random_seed(1)
    x = inputs = keras.Input((64, 256), name="x")
    for _ in range(4):
        attended = layers.MultiHeadAttention(4, 64)(x, x)
        x = layers.LayerNormalization()(x + attended)
        hidden = layers.Dense(512, activation="gelu")(x)
        x = layers.LayerNormalization()(x + layers.Dense(256)(hidden))
    return keras.Model(inputs, layers.Dense(8)(layers.GlobalAveragePooling1D()(x)))


def counter() -> Any:
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 4], name="x")
    count = v1.get_variable("count", initializer=0.0, use_resource=True)
    return {"x": x}, {"y": x + count.assign_add(1.0)}


def noise() -> Any:
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 4], name="x")
    return {"x": x}, {"y": x + tf.random.normal([4])}


def loop() -> Any:
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([None, 8], tf.float32)])
    def f(x: Any) -> Any:
        for _ in tf.range(5):
            x = tf.cond(tf.reduce_sum(x) > 0, lambda x=x: x * 0.5, lambda x=x: x + 1.0)
        return {"y": x}

    return f


def vectorizer() -> Any:
    import keras

    layer = keras.layers.TextVectorization(vocabulary=["a", "b"], output_sequence_length=4)
    return keras.Sequential([keras.Input((1,), dtype="string"), layer])


MODELS: dict[str, Callable[[], Any]] = {
    "dense 784x10": functools.partial(
        sequential, (784,), lambda k: k.Dense(10, activation="softmax")
    ),
    "dense 3x512": functools.partial(
        sequential, (784,), *[lambda k: k.Dense(512, activation="relu")] * 3
    ),
    "gelu, swish, selu": functools.partial(
        sequential,
        (64,),
        lambda k: k.Dense(64, activation="gelu"),
        lambda k: k.Dense(64, activation="swish"),
        lambda k: k.Dense(8, activation="selu"),
    ),
    "small conv": functools.partial(
        sequential,
        (28, 28, 1),
        lambda k: k.Conv2D(16, 3, activation="relu"),
        lambda k: k.MaxPooling2D(),
        lambda k: k.Conv2D(32, 3, activation="relu"),
        lambda k: k.Flatten(),
        lambda k: k.Dense(10),
    ),
    "separable conv, batch norm": functools.partial(
        sequential,
        (32, 32, 3),
        lambda k: k.SeparableConv2D(16, 3),
        lambda k: k.BatchNormalization(),
        lambda k: k.GlobalAveragePooling2D(),
    ),
    "conv 1d": functools.partial(
        sequential,
        (128, 4),
        lambda k: k.Conv1D(16, 5, padding="causal", dilation_rate=2),
        lambda k: k.GlobalMaxPooling1D(),
    ),
    "transposed conv, upsampling": functools.partial(
        sequential,
        (8, 8, 4),
        lambda k: k.Conv2DTranspose(8, 3, strides=2),
        lambda k: k.UpSampling2D(interpolation="bilinear"),
    ),
    "embedding": functools.partial(
        sequential,
        (32,),
        lambda k: k.Embedding(1000, 32),
        lambda k: k.GlobalAveragePooling1D(),
        dtype="int32",
    ),
    "LSTM(128) x 50": functools.partial(
        sequential, (50, 32), lambda k: k.LSTM(128), lambda k: k.Dense(4)
    ),
    "GRU": functools.partial(sequential, (20, 16), lambda k: k.GRU(32)),
    "bidirectional LSTM": functools.partial(
        sequential, (20, 16), lambda k: k.Bidirectional(k.LSTM(16))
    ),
    "transformer 4 x 256": transformer,
    "loop and condition": loop,
    "counter": counter,
    "random": noise,
    "float16": functools.partial(sequential, (16,), lambda k: k.Dense(4, dtype="float16")),
    "text": vectorizer,
    "MobileNetV2": functools.partial(application, "MobileNetV2", 96),
    "MobileNetV3Small": functools.partial(application, "MobileNetV3Small", 96),
    "EfficientNetB0": functools.partial(application, "EfficientNetB0", 96),
    "ResNet50": functools.partial(application, "ResNet50", 96),
    "DenseNet121": functools.partial(application, "DenseNet121", 96),
    "NASNetMobile": functools.partial(application, "NASNetMobile", 224),
    "ConvNeXtTiny": functools.partial(application, "ConvNeXtTiny", 96),
}


def main(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER] = folder
        for name in names or MODELS:
            started = time.monotonic()
            try:
                examined = Blueprint(MODELS[name], engine="fastest").examine(caller())
            except Exception as error:
                print(f"| {name} | {type(error).__name__}: {error} |", flush=True)
                continue
            cells = []
            for one in examined.candidates:
                ratios = " / ".join(f"{ratio:.2f}" for ratio in one.ratios.values())
                held = format_bytes(one.held_bytes)
                cells.append(
                    f"refused: {one.refusal[:160]}"
                    if one.refusal
                    else f"{ratios}, {one.worst:.0e}, {held}"
                )
            seconds = time.monotonic() - started
            held = format_bytes(examined.held_bytes)
            print(f"| {name} | {held} | {' | '.join(cells)} | {seconds:.0f} s |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
