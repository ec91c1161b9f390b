"""A file that makes a session the default one may use it. Nothing is reported."""

import tensorflow.compat.v1 as tf

x = tf.placeholder(tf.float32)
y = tf.square(x)


def act(value):
    return tf.get_default_session().run(y, {x: value})


def main():
    with tf.Session():
        print(act(1.0), y.eval(feed_dict={x: 2.0}))
