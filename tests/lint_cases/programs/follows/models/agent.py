"""Classes that are given a session, and a model that makes ops."""

import tensorflow.compat.v1 as tf

from .base import Base


class Agent(Base):
    def __init__(self, sess):
        self.sess = sess
        self.x = tf.placeholder(tf.float32)

    def act(self, state):
        return self.sess.run(self.x, {self.x: state})


class Closing(Base):
    def __init__(self, sess):
        self.sess = sess

    def done(self):
        self.sess.close()


class Model:
    def __init__(self):
        self.v = tf.get_variable("v", [])
        self.op = None

    def step_op(self):
        return tf.assign_add(self.v, 1.0)

    def cached_op(self):
        if self.op is None:
            self.op = tf.assign_add(self.v, 1.0)
        return self.op

    def train(self, batch):
        tf.get_default_session().run(self.op, {self.v: batch})  # expect: SOJ005
