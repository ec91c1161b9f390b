"""A training loop adds ops in every step."""

import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
weight = tf.Variable(1.0)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for _ in range(8):
        session.run(weight.assign_add(0.5))  # expect: SOJ004
