"""Models of many kinds, with random weights, each built inside a worker: for `engines.py`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


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


def while_loop() -> Any:
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 8], name="x")
    _, y = tf.while_loop(
        lambda n, y: tf.logical_and(n < 20, tf.reduce_max(tf.abs(y)) > 1.0),
        lambda n, y: (n + 1, y * 0.7),
        (tf.constant(0), x),
    )
    return {"x": x}, {"y": y}


def vectorizer() -> Any:
    import keras

    layer = keras.layers.TextVectorization(vocabulary=["a", "b"], output_sequence_length=4)
    return keras.Sequential([keras.Input((1,), dtype="string"), layer])


def table() -> Any:
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.int64, [None], name="x")
    values = tf.lookup.KeyValueTensorInitializer(
        tf.constant([1, 2], tf.int64), tf.constant([1.5, 2.5])
    )
    return {"x": x}, {"y": tf.lookup.StaticHashTable(values, 0.0).lookup(x)}


def ragged() -> Any:
    import tensorflow as tf

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.float32, name="values"),
            tf.TensorSpec([3], tf.int64, name="lengths"),
        ]
    )
    def f(values: Any, lengths: Any) -> Any:
        lengths = lengths % 5
        used = values[: tf.reduce_sum(lengths)]
        lengths = tf.minimum(lengths, tf.size(used, tf.int64) // 3)
        rows = tf.RaggedTensor.from_row_lengths(used[: tf.reduce_sum(lengths)], lengths)
        return {"y": rows.to_tensor(shape=[3, 4]), "n": rows.row_lengths()}

    return f


def several() -> Any:
    """Two inputs; outputs of floats, integers and booleans."""
    import tensorflow as tf

    v1 = tf.compat.v1
    a = v1.placeholder(tf.float32, [None, 6], name="a")
    b = v1.placeholder(tf.float32, [None, 6], name="b")
    values, places = tf.math.top_k(a + b, 3)
    return (
        {"a": a, "b": b},
        {"top": values, "at": places, "more": a > b, "sum": tf.cumsum(a, axis=1)},
    )


def einsum() -> Any:
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 8, 4], name="x")
    y = tf.einsum("bij,bkj->bik", x, x)
    return {"x": x}, {"y": tf.nn.softmax(y), "norm": tf.norm(y, axis=-1)}


def spectrum() -> Any:
    import tensorflow as tf

    x = tf.compat.v1.placeholder(tf.float32, [None, 64], name="x")
    return {"x": x}, {"y": tf.abs(tf.signal.rfft(x))}


def boxes() -> Any:
    """The last stage of a detector: the best boxes, in a number that varies."""
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [32, 4], name="x")
    corners = tf.sort(tf.reshape(tf.abs(x), [32, 2, 2]), axis=1)
    best = tf.image.non_max_suppression(
        tf.reshape(corners, [32, 4]), tf.reduce_sum(x, 1), 8, iou_threshold=0.5
    )
    return {"x": x}, {"best": best, "boxes": tf.gather(x, best)}


def pixels() -> Any:
    import tensorflow as tf

    x = tf.compat.v1.placeholder(tf.uint8, [None, 24, 24, 3], name="x")
    y = tf.image.resize(tf.cast(x, tf.float32) / 255.0, [12, 12])
    return {"x": x}, {"y": tf.reduce_mean(y, [1, 2]), "grey": tf.image.rgb_to_grayscale(y)}


def old_variables() -> Any:
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 8], name="x")
    w = v1.get_variable("w", [8, 4], initializer=v1.random_normal_initializer(seed=1))
    return {"x": x}, {"y": tf.nn.softplus(tf.matmul(x, w))}


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
    "while loop": while_loop,
    "ragged rows": ragged,
    "two inputs, four outputs": several,
    "einsum, softmax, norm": einsum,
    "Fourier transform": spectrum,
    "non-max suppression": boxes,
    "bytes of pixels, resize": pixels,
    "reference variables": old_variables,
    "normalisation by layer and group": functools.partial(
        sequential,
        (8, 8, 8),
        lambda k: k.Conv2D(8, 3, groups=2),
        lambda k: k.GroupNormalization(4),
        lambda k: k.LayerNormalization(),
        lambda k: k.PReLU(),
    ),
    "convolution in 3d": functools.partial(
        sequential, (6, 6, 6, 2), lambda k: k.Conv3D(4, 3), lambda k: k.MaxPooling3D()
    ),
    "ConvLSTM": functools.partial(sequential, (4, 8, 8, 2), lambda k: k.ConvLSTM2D(3, 3)),
    "table": table,
    "counter": counter,
    "random": noise,
    "float16": functools.partial(sequential, (16,), lambda k: k.Dense(4, dtype="float16")),
    "text": vectorizer,
    "VGG16": functools.partial(application, "VGG16", 64),
    "Xception": functools.partial(application, "Xception", 96),
    "InceptionV3": functools.partial(application, "InceptionV3", 96),
    "InceptionResNetV2": functools.partial(application, "InceptionResNetV2", 96),
    "MobileNet": functools.partial(application, "MobileNet", 96),
    "MobileNetV2": functools.partial(application, "MobileNetV2", 96),
    "MobileNetV3Small": functools.partial(application, "MobileNetV3Small", 96),
    "EfficientNetB0": functools.partial(application, "EfficientNetB0", 96),
    "EfficientNetV2B0": functools.partial(application, "EfficientNetV2B0", 96),
    "ResNet50V2": functools.partial(application, "ResNet50V2", 96),
    "ResNet50": functools.partial(application, "ResNet50", 96),
    "DenseNet121": functools.partial(application, "DenseNet121", 96),
    "NASNetMobile": functools.partial(application, "NASNetMobile", 224),
    "ConvNeXtTiny": functools.partial(application, "ConvNeXtTiny", 96),
}
