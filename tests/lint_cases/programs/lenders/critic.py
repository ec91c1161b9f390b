"""Runs on the session that main.py makes the default around its calls. Nothing is reported."""

import tensorflow as tf


class Critic:
    def __init__(self):
        self.x = tf.placeholder(tf.float32)
        self.y = tf.square(self.x)

    def score(self, value):
        return tf.get_default_session().run(self.y, {self.x: value})

    def halve(self, value):
        return tf.get_default_session().run(self.y, {self.x: value}) / 2
