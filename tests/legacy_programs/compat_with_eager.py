"""A session beside eager execution: the author meant a graph."""

import tensorflow as tf

a = tf.constant(20)
b = tf.Variable(1)
with tf.compat.v1.Session() as sess:
    sess.run(tf.compat.v1.global_variables_initializer())
    print(sess.run(a + 2 * b), tf.__version__.split(".")[0])
