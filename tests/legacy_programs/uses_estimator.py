"""A program that wants what is gone."""

import tensorflow as tf

with tf.Session():
    pass
tf.estimator.DNNClassifier(hidden_units=[10])
