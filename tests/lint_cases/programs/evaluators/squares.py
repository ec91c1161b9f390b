"""Runs on the session of its base class, and on whatever is there."""

import tensorflow.compat.v1 as tf
from base import Evaluator


class Squares(Evaluator):
    def build(self):
        self.x = tf.placeholder(tf.float32)
        self.y = tf.square(self.x)

    def evaluate(self, value):
        return self.y.eval({self.x: value}) + self.y.eval(feed_dict={self.x: value})

    def report(self, value):
        return self.y.eval(feed_dict={self.x: value})  # expect: SOJ005
