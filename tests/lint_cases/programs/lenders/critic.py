"""Runs on the session of whoever calls it: that of main.py, or any."""

import tensorflow as tf


class Critic:
    def __init__(self):
        self.x = tf.placeholder(tf.float32)
        self.y = tf.square(self.x)

    def score(self, value):
        return tf.get_default_session().run(self.y, {self.x: value})

    def halve(self, value):
        return tf.get_default_session().run(self.y, {self.x: value}) / 2  # expect: SOJ005


def prune(weights, least):
    values = weights.eval()  # expect: SOJ005
    values[abs(values) < least] = 0
    weights.assign(values).eval()  # expect: SOJ005
