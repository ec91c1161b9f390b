"""A large session is closed; the program goes on, and the memory is not back."""

import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
with tf.Graph().as_default():
    large = tf.Variable(tf.random_normal([24, 1024, 1024]))
    with tf.Session() as session:  # expect: SOJ007
        session.run(tf.global_variables_initializer())
with tf.Graph().as_default():
    small = tf.constant(1.0)
    with tf.Session() as session:
        session.run(small)
