"""A program of the TensorFlow 1 era: its names are gone from today's TensorFlow."""

import tensorflow as tf
from tensorflow.contrib import layers


class Model:
    def __init__(self):
        self.x = tf.placeholder(tf.float32, [None, 2])
        self.y = layers.fully_connected(self.x, 1)
        self.sess = tf.Session()  # expect: SOJ006
        self.sess.run(tf.global_variables_initializer())


model = Model()
model.sess.run(model.y, {model.x: [[1, 2]]})
with tf.Session() as sess:
    sess.run(tf.constant(1))
step = tf.assign_add(tf.train.get_or_create_global_step(), 1)
with tf.train.MonitoredTrainingSession(hooks=[tf.train.StopAtStepHook(3)]) as sess:
    while not sess.should_stop():
        sess.run(step)
