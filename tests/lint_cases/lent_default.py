"""A context manager that makes a session the default: not for the code beside it."""

from contextlib import contextmanager

import tensorflow.compat.v1 as tf


@contextmanager
def default_session():
    with tf.Session() as sess, sess.as_default():
        yield sess


class Statistics:
    def __init__(self):
        self.mean = tf.get_variable("mean", [])
        self.value = tf.placeholder(tf.float32, [])
        self.assign = tf.assign(self.mean, self.value)

    def update_statistics(self, value):
        tf.get_default_session().run(self.assign, {self.value: value})  # expect: SOJ005
