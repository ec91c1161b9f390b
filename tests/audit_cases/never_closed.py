"""A function opens a session and forgets it."""

import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
answer = tf.constant(42)


def ask():
    session = tf.Session()  # expect: SOJ001
    return session.run(answer)


print(ask())
