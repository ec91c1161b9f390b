"""`tf.contrib.seq2seq`: the loss; decoders, beams and attention are in their own modules."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy import removed
from sojourn.compat.legacy.contrib import attention, beams, decoder_fns, decoding, scheduled
from sojourn.compat.legacy.namespaces import adopt


def sequence_loss(
    logits: Any,
    targets: Any,
    weights: Any,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    softmax_loss_function: Any = None,
    name: Any = None,
) -> Any:
    """Return the weighted cross entropy of logits ``[batch, time, classes]``."""
    with tf.name_scope(name or "sequence_loss"):
        classes = tf.shape(logits)[2]
        flat = tf.reshape(logits, [-1, classes])
        labels = tf.reshape(targets, [-1])
        function = softmax_loss_function or tf.nn.sparse_softmax_cross_entropy_with_logits
        losses = function(labels=labels, logits=flat) * tf.reshape(weights, [-1])
        if average_across_timesteps and average_across_batch:
            return tf.reduce_sum(losses) / (tf.reduce_sum(weights) + 1e-12)
        losses = tf.reshape(losses, tf.shape(logits)[:2])
        for axis, wanted in ((0, average_across_batch), (1, average_across_timesteps)):
            if wanted:
                return tf.reduce_sum(losses, [axis]) / (tf.reduce_sum(weights, [axis]) + 1e-12)
        return losses


adopt(globals(), attention, beams, decoder_fns, decoding, scheduled)
__getattr__ = removed.missing_name("tf.contrib.seq2seq")
