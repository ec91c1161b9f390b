"""`tensorflow.examples.tutorials.mnist.mnist`: the two-layer network of the tutorial."""

from __future__ import annotations

import math
from typing import Any

import tensorflow.compat.v1 as tf

NUM_CLASSES = 10
IMAGE_SIZE = 28
IMAGE_PIXELS = IMAGE_SIZE * IMAGE_SIZE


def inference(images: Any, hidden1_units: int, hidden2_units: int) -> Any:
    """Return the logits of a batch of images."""
    widths = [IMAGE_PIXELS, hidden1_units, hidden2_units, NUM_CLASSES]
    names = ["hidden1", "hidden2", "softmax_linear"]
    value = images
    for name, wide, narrow in zip(names, widths, widths[1:], strict=False):
        with tf.name_scope(name):
            start = tf.truncated_normal([wide, narrow], stddev=1.0 / math.sqrt(float(wide)))
            value = tf.matmul(value, tf.Variable(start, name="weights"))
            value += tf.Variable(tf.zeros([narrow]), name="biases")
            if name != names[-1]:
                value = tf.nn.relu(value)
    return value


def loss(logits: Any, labels: Any) -> Any:
    """Return the mean cross entropy."""
    return tf.losses.sparse_softmax_cross_entropy(labels=tf.cast(labels, tf.int64), logits=logits)


def training(loss: Any, learning_rate: float) -> Any:
    """Return an op that runs one gradient descent step and counts it."""
    tf.summary.scalar("loss", loss)
    step = tf.Variable(0, name="global_step", trainable=False)
    return tf.train.GradientDescentOptimizer(learning_rate).minimize(loss, global_step=step)


def evaluation(logits: Any, labels: Any) -> Any:
    """Return the number of correct predictions in the batch."""
    right = tf.nn.in_top_k(predictions=logits, targets=labels, k=1)
    return tf.reduce_sum(tf.cast(right, tf.int32))
