"""`tf.contrib.crf`: linear-chain conditional random fields."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from sojourn.compat.legacy import removed


def crf_log_norm(inputs: Any, sequence_lengths: Any, transition_params: Any) -> Any:
    """Return the normalization: the log-sum-exp of the scores of all tag sequences."""
    first = inputs[:, 0, :]
    later = tf.transpose(inputs[:, 1:, :], [1, 0, 2])
    steps = tf.range(1, tf.shape(inputs)[1])
    lengths = tf.cast(sequence_lengths, tf.int32)

    def move(alphas: Any, step: Any) -> Any:
        scores, index = step
        moved = scores + tf.reduce_logsumexp(
            tf.expand_dims(alphas, 2) + tf.expand_dims(transition_params, 0), [1]
        )
        # Steps past the end of a sequence leave its scores unchanged.
        return tf.where(index < lengths, moved, alphas)

    last = tf.foldl(move, (later, steps), initializer=first)
    return tf.reduce_logsumexp(last, [1])


def crf_sequence_score(
    inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any
) -> Any:
    """Return the score of the given tag sequence of each example."""
    mask = tf.sequence_mask(sequence_lengths, tf.shape(tag_indices)[1], dtype=tf.float32)
    tags = tf.shape(inputs)[2]
    unary = tf.reduce_sum(inputs * tf.one_hot(tag_indices, tags), 2)
    pairs = tf.gather_nd(
        transition_params, tf.stack([tag_indices[:, :-1], tag_indices[:, 1:]], axis=2)
    )
    return tf.reduce_sum(unary * mask, 1) + tf.reduce_sum(pairs * mask[:, 1:], 1)


def crf_log_likelihood(
    inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any = None
) -> Any:
    """Return the log-likelihood of each tag sequence, and the transition weights."""
    tags = tf.dimension_value(inputs.shape[2])
    if transition_params is None:
        transition_params = tf.get_variable("transitions", [tags, tags])
    score = crf_sequence_score(inputs, tag_indices, sequence_lengths, transition_params)
    norm = crf_log_norm(inputs, sequence_lengths, transition_params)
    return score - norm, transition_params


def viterbi_decode(score: Any, transition_params: Any) -> tuple[list[int], Any]:
    """Return the best tag sequence of one example and its score, in plain NumPy."""
    score, transition_params = np.asarray(score), np.asarray(transition_params)
    best = score[0]
    back = []
    for row in score[1:]:
        through = best[:, np.newaxis] + transition_params
        back.append(np.argmax(through, 0))
        best = row + np.max(through, 0)
    path = [int(np.argmax(best))]
    for pointers in reversed(back):
        path.append(int(pointers[path[-1]]))
    return path[::-1], np.max(best)


def crf_decode(potentials: Any, transition_params: Any, sequence_length: Any) -> Any:
    """Return the best tag sequence of each example, and its score."""
    longest = tf.shape(potentials)[1]
    lengths = tf.minimum(tf.cast(sequence_length, tf.int32), longest)
    # Pad by one step, which changes nothing, because `tf.scan` fails on zero steps.
    potentials = tf.pad(potentials, [[0, 0], [0, 1], [0, 0]])
    later = tf.transpose(potentials[:, 1:, :], [1, 0, 2])
    tags = tf.shape(potentials)[2]
    batch = tf.shape(potentials)[0]
    same = tf.tile(tf.expand_dims(tf.range(tags), 0), [batch, 1])

    def move(state: Any, step: Any) -> Any:
        best, _ = state
        scores, index = step
        through = tf.expand_dims(best, 2) + tf.expand_dims(transition_params, 0)
        on = index < lengths
        # Steps past the end of a sequence keep its scores; each tag points back to itself.
        moved = tf.where(on, scores + tf.reduce_max(through, 1), best)
        return moved, tf.where(on, tf.argmax(through, 1, output_type=tf.int32), same)

    steps = (later, tf.range(1, tf.shape(potentials)[1]))
    bests, back = tf.scan(move, steps, initializer=(potentials[:, 0, :], same))
    last = tf.concat([potentials[:, :1, :], tf.transpose(bests, [1, 0, 2])], 1)[:, -1]
    end = tf.argmax(last, 1, output_type=tf.int32)
    rows = tf.range(batch)
    path = tf.scan(
        lambda tag, pointers: tf.gather_nd(pointers, tf.stack([rows, tag], 1)),
        tf.reverse(back, [0]),
        initializer=end,
    )
    found = tf.reverse(tf.concat([tf.expand_dims(end, 0), path], 0), [0])
    mask = tf.sequence_mask(lengths, longest, tf.int32)
    return tf.transpose(found[:-1]) * mask, tf.reduce_max(last, 1)


__getattr__ = removed.missing_name("tf.contrib.crf")
