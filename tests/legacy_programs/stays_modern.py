"""A TensorFlow 2 program. It runs as it would by itself."""

import tensorflow as tf

x = tf.Variable(3.0)
with tf.GradientTape() as tape:
    y = x * x
print(tape.gradient(y, x).numpy(), tf.executing_eagerly(), hasattr(tf, "placeholder"))
