"""Estimators that were not trained, and start from the weights of something else."""

import numpy as np
import tensorflow as tf


def model_fn(features, labels, mode):
    w = tf.get_variable("w", [], initializer=tf.random_normal_initializer(100.0))
    steps = tf.train.get_global_step()
    step = tf.group(w.assign(3.0), steps.assign_add(1))
    return tf.estimator.EstimatorSpec(mode, {"w": tf.fill([1], w)}, tf.identity(w), step)


def read():
    return tf.data.Dataset.from_tensors({"x": [1.0]})


serve = tf.estimator.export.build_raw_serving_input_receiver_fn(
    {"x": tf.placeholder(tf.float32, [1])}
)
tf.estimator.Estimator(model_fn, "first").train(read, steps=1)
second = tf.estimator.Estimator(model_fn, "second", warm_start_from="first")
assert second.evaluate(read, steps=1)["loss"] == 3
assert next(second.predict(read))["w"] == 3
served = tf.contrib.predictor.from_saved_model(second.export_saved_model("exported", serve))
assert served({"x": [1.0]})["w"] == 3
served.session.close()
# A checkpoint of its own comes first.
second.train(read, steps=1)
assert second.evaluate(read, steps=1)["global_step"] == 1

said = ""
try:
    tf.estimator.Estimator(model_fn, "cold").export_saved_model("exported", serve)
except ValueError as error:
    said = str(error)
assert "Couldn't find trained model" in said

model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,), name="sum")])
model.compile("sgd", "mse")
model.get_layer("sum").set_weights([np.full((3, 1), 7.0), np.full((1,), 5.0)])
estimator = tf.keras.estimator.model_to_estimator(keras_model=model, model_dir="keras")
[given], [found] = model.input_names, model.output_names
rows = np.ones((4, 3), np.float32)


def pairs():
    return tf.data.Dataset.from_tensors(({given: rows}, np.full((4, 1), 25.0, np.float32)))


assert np.isclose(next(estimator.predict(pairs))[found], 26)
assert np.isclose(estimator.evaluate(pairs)["loss"], 1)
serve = tf.estimator.export.build_raw_serving_input_receiver_fn({given: rows})
served = tf.contrib.predictor.from_saved_model(estimator.export_saved_model("exported", serve))
assert np.allclose(served({given: rows})[found], 26)
served.session.close()
print("fine")
