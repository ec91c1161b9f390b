"""`tf.contrib.losses.metric_learning`: losses on the distances between examples."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy import removed


def _distances(points: Any) -> Any:
    """Return the squared distance of each pair of rows, clipped at 0, with 0 on the diagonal."""
    squares = tf.reduce_sum(tf.square(points), 1, keep_dims=True)
    found = squares + tf.transpose(squares) - 2 * tf.matmul(points, points, transpose_b=True)
    return tf.matrix_set_diag(tf.nn.relu(found), tf.zeros_like(squares[:, 0]))


def triplet_semihard_loss(labels: Any, embeddings: Any, margin: float = 1.0) -> Any:
    """Return the mean triplet loss over all pairs (anchor, partner) with the same label.

    The third element of a triplet, here called stranger, has another label: the nearest one that is
    farther from the anchor than the partner or, if none is, the farthest one.
    """
    embeddings = tf.convert_to_tensor(embeddings)
    labels = tf.reshape(labels, [-1])
    apart = _distances(embeddings)
    same = tf.equal(labels[:, None], labels[None, :])
    # [anchor, partner, stranger]
    between, to_partner = apart[:, None, :], apart[:, :, None]
    farther = tf.logical_and(tf.logical_not(same)[:, None, :], between > to_partner)
    everywhere = between + tf.zeros_like(to_partner)
    highest = tf.fill(tf.shape(everywhere), apart.dtype.max)
    nearest = tf.reduce_min(tf.where(farther, everywhere, highest), 2)
    farthest = tf.reduce_max(tf.where(same, tf.zeros_like(apart), apart), 1)[:, None]
    farthest += tf.zeros_like(nearest)
    stranger = tf.where(tf.reduce_any(farther, 2), nearest, farthest)
    pairs = tf.cast(same, apart.dtype)
    pairs = tf.matrix_set_diag(pairs, tf.zeros_like(apart[:, 0]))
    return tf.div(
        tf.reduce_sum(tf.nn.relu(margin + apart - stranger) * pairs),
        tf.reduce_sum(pairs),
        name="triplet_semihard_loss",
    )


def contrastive_loss(
    labels: Any, embeddings_anchor: Any, embeddings_positive: Any, margin: float = 1.0
) -> Any:
    """Return a loss that pulls pairs with label 1 together and pushes others `margin` apart."""
    apart = tf.sqrt(tf.reduce_sum(tf.squared_difference(embeddings_anchor, embeddings_positive), 1))
    labels = tf.cast(labels, apart.dtype)
    pushed = (1 - labels) * tf.square(tf.maximum(margin - apart, 0))
    return tf.reduce_mean(labels * tf.square(apart) + pushed, name="contrastive_loss")


__getattr__ = removed.missing_name("tf.contrib.losses.metric_learning")
