"""A program that names devices which few machines have."""

import tensorflow as tf

with tf.device("/GPU:7"):
    a = tf.constant(2.0, name="a")
    v = tf.Variable(3.0, name="v")
with tf.device("/device:GPU:8"):
    b = a * v
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    print(sess.run(b))
