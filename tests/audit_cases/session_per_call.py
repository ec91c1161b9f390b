"""Every request gets a session of its own, properly closed."""

import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
x = tf.placeholder(tf.float32)
y = x * 2.0


def serve(value):
    with tf.Session() as session:  # expect: SOJ003
        return session.run(y, {x: value})


print([serve(value) for value in range(6)])
