"""A program that wants what is gone."""

import tensorflow as tf

with tf.Session():
    pass
tf.estimator.BoostedTreesClassifier([], n_batches_per_layer=1)
