"""A training loop: the variables live in the worker and change there with each step."""

import numpy as np
import tensorflow.compat.v1 as tf

from sojourn.compat.v1 import Session

tf.disable_eager_execution()

x = tf.placeholder(tf.float32, [None])
wanted = tf.placeholder(tf.float32, [None])
slope = tf.get_variable("slope", initializer=0.0)
offset = tf.get_variable("offset", initializer=0.0)
loss = tf.reduce_mean(tf.square(slope * x + offset - wanted))
train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)

points = np.linspace(-1, 1, 64, dtype=np.float32)
with Session() as session:
    session.run(tf.global_variables_initializer())
    losses = [
        session.run([train, loss], {x: points, wanted: 3 * points + 1})[1] for _ in range(200)
    ]
    found = session.run([slope, offset])

print("the loss fell:", losses[-1] < losses[0] / 1000)
print("found: {:.2f} x + {:.2f}".format(*found))
