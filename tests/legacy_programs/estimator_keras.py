"""Keras models in model functions, and as estimators."""

import numpy as np
import tensorflow as tf

rows = np.random.RandomState(0).rand(200, 4).astype(np.float32)
wanted = rows[:, :3].argmax(1).astype(np.int32)
layers = tf.keras.layers
tf.set_random_seed(1)
seeded = tf.estimator.RunConfig(tf_random_seed=1)

model = tf.keras.Sequential(
    [
        layers.Dense(8, activation="relu", input_shape=(4,), name="body"),
        layers.Dropout(0.1),
        layers.Dense(3, activation="softmax"),
    ]
)
model.compile(tf.keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy", ["accuracy"])
start = model.get_layer("body").get_weights()[0]
estimator = tf.keras.estimator.model_to_estimator(
    keras_model=model, model_dir="model", config=seeded
)


def read():
    features = {model.input_names[0]: rows}
    return tf.data.Dataset.from_tensor_slices((features, wanted[:, None])).repeat(5).batch(20)


estimator.train(read, steps=1)
[name] = [n for n in estimator.get_variable_names() if n.endswith("body/kernel")]
assert np.abs(estimator.get_variable_value(name) - start).max() < 0.06  # a step away
estimator.train(read)
scores = estimator.evaluate(read, steps=10)
assert scores["acc"] > 0.7, scores
assert next(estimator.predict(read))[model.output_names[0]].shape == (3,)


def model_fn(features, labels, mode):
    training = mode == tf.estimator.ModeKeys.TRAIN
    inner = tf.keras.Sequential([layers.Dense(8, tf.nn.relu), layers.BatchNormalization()])
    logits = tf.layers.dense(inner(features, training=training), 3)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    updates = tf.group(inner.updates) if training else tf.no_op()
    with tf.control_dependencies([updates]):
        step = tf.train.AdamOptimizer(0.05).minimize(loss, tf.train.get_global_step())
    accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
    accuracy.update_state(labels, logits)
    return tf.estimator.EstimatorSpec(
        mode, logits, loss, step, eval_metric_ops={"accuracy": accuracy}
    )


custom = tf.estimator.Estimator(model_fn, "custom", seeded)
whole = lambda: tf.data.Dataset.from_tensors((rows, wanted)).repeat(30)  # noqa: E731
custom.train(whole)
assert custom.evaluate(whole, steps=1)["accuracy"] > 0.6
print("fine")
