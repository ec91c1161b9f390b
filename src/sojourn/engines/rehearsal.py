"""A graph that is built in the zygote, never run, and thrown away.

The first op of each kind makes TensorFlow look up its definition, import modules and fill caches.
Doing that before the fork saves every worker a good part of its opening. Building runs no op,
lists no device and starts no thread; the zygote checks that before each fork.
"""

from __future__ import annotations

import gc

import tensorflow as tf


def rehearse() -> None:
    """Build what most models are made of."""
    v1 = tf.compat.v1
    with v1.Graph().as_default():
        x = v1.placeholder(tf.float32, [None, 4], name="x")
        labels = v1.placeholder(tf.int64, [None])
        w = v1.get_variable("w", [4, 3], initializer=v1.glorot_uniform_initializer())
        b = v1.get_variable("b", [3], initializer=v1.zeros_initializer())
        logits = tf.nn.relu(tf.matmul(x, w) + b)
        tf.nn.softmax(logits)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(losses))
        v1.global_variables_initializer()
    gc.collect()
