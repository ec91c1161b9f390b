"""Runs on the session that main.py entered. Nothing is reported."""

import tensorflow as tf

x = tf.placeholder(tf.float32)
y = tf.square(x)


def act(value):
    return tf.get_default_session().run(y, {x: value})


def act_later(value):
    return y.eval({x: value})
