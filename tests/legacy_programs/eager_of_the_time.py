"""Eager execution as TensorFlow 1 had it: switched on by the program, with helpers in contrib."""

import numpy as np
import tensorflow as tf
import tensorflow.contrib.eager as tfe

tf.enable_eager_execution()
x = np.arange(4, dtype=np.float32)
slope = tfe.Variable(0.0)


def loss():
    return tf.reduce_mean(tf.square(slope * x - 3 * x))


optimizer = tf.train.GradientDescentOptimizer(0.1)
for _ in range(50):
    value, gradients = tfe.implicit_value_and_gradients(loss)()
    optimizer.apply_gradients(gradients)
assert np.isclose(slope.numpy(), 3)
assert tfe.gradients_function(lambda v: v * v)(3.0)[0].numpy() == 6
assert [int(n) for n in tfe.Iterator(tf.data.Dataset.range(3))] == [0, 1, 2]
print("fine")
