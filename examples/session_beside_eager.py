"""Eager code and GradientTape in the same program as sessions. They do not affect each other."""

import tensorflow as tf

from sojourn.compat.v1 import Session

slope = tf.Variable(2.0)
with tf.GradientTape() as tape:
    loss = (slope * 3.0 - 1.0) ** 2
print("eager gradient:", float(tape.gradient(loss, slope)))

with tf.Graph().as_default():
    x = tf.compat.v1.placeholder(tf.float32, [])
    y = (x * 3.0 - 1.0) ** 2
    gradient = tf.gradients(y, x)[0]
    with Session() as session:
        print("session gradient:", float(session.run(gradient, {x: 2.0})))

slope.assign_add(1.0)
print("eager again:", float(slope))
