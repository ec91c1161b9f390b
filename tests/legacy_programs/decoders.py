"""Decoding with attention, and tag sequences: parts of contrib that sequence models use."""

import itertools

import numpy as np
import tensorflow as tf
from tensorflow.contrib import crf, seq2seq
from tensorflow.python.layers.core import Dense

BATCH, TIME, WORDS = 2, 4, 6
rng = np.random.RandomState(0)
words = tf.get_variable("words", [WORDS, 5])
target = tf.constant(rng.randint(0, WORDS, [BATCH, TIME]))
lengths = tf.constant([4, 2])
embedded = tf.nn.embedding_lookup(words, target)

# What a decoder computes with the right words fed is what an unrolled cell computes.
cell = tf.contrib.rnn.GRUCell(7)
start = cell.zero_state(BATCH, tf.float32)
unrolled, _ = tf.nn.dynamic_rnn(cell, embedded, lengths, initial_state=start)
projection = Dense(WORDS, use_bias=False)
helper = seq2seq.TrainingHelper(embedded, lengths)
plain, _, plain_lengths = seq2seq.dynamic_decode(
    seq2seq.BasicDecoder(cell, helper, start), impute_finished=True
)

memory = tf.constant(rng.randn(BATCH, 3, 8).astype(np.float32))
looks = seq2seq.BahdanauAttention(7, memory, memory_sequence_length=[3, 1], normalize=True)
seeing = seq2seq.AttentionWrapper(
    tf.contrib.rnn.BasicLSTMCell(7), looks, attention_layer_size=6, alignment_history=True
)
state = seeing.zero_state(BATCH, tf.float32)
taught, ended, _ = seq2seq.dynamic_decode(
    seq2seq.BasicDecoder(seeing, seq2seq.TrainingHelper(embedded, lengths), state, projection)
)
loss = seq2seq.sequence_loss(taught.rnn_output, target, tf.sequence_mask(lengths, dtype=tf.float32))
train = tf.train.AdamOptimizer(0.1).minimize(loss)
greedy = seq2seq.GreedyEmbeddingHelper(words, tf.fill([BATCH], 0), WORDS + 1)
with tf.variable_scope(tf.get_variable_scope(), reuse=True):
    said, _, said_lengths = seq2seq.dynamic_decode(
        seq2seq.BasicDecoder(seeing, greedy, state, projection), maximum_iterations=9
    )
doubled = seq2seq.tile_batch(tf.constant([[1], [2]]), 2)

scores = rng.randn(2, 4, 3).astype(np.float32)
moves = rng.randn(3, 3).astype(np.float32)
decoded, best = crf.crf_decode(tf.constant(scores), tf.constant(moves), tf.constant([4, 1]))


def score(tags):
    total = sum(scores[0, i, tag] for i, tag in enumerate(tags))
    return total + sum(moves[a, b] for a, b in itertools.pairwise(tags))


with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    one, other, ends = sess.run([unrolled, plain.rnn_output, plain_lengths])
    assert np.allclose(one, other, atol=1e-6)
    assert list(ends) == [4, 2]
    before = sess.run(loss)
    for _ in range(30):
        sess.run(train)
    assert sess.run(loss) < before / 2
    seen = sess.run(ended.alignment_history.stack())
    assert np.allclose(seen.sum(2), 1, atol=1e-5)
    assert not seen[:, 1, 1:].any()
    assert list(sess.run(said_lengths)) == [9, 9]
    assert sess.run(said.sample_id).shape == (BATCH, 9)
    assert sess.run(doubled).ravel().tolist() == [1, 1, 2, 2]
    tags, value = sess.run([decoded, best])
    right = max(itertools.product(range(3), repeat=4), key=score)
    assert tuple(tags[0]) == right
    assert tags[1].tolist() == [scores[1, 0].argmax(), 0, 0, 0]
    assert np.allclose(value, [score(right), scores[1, 0].max()], atol=1e-4)
print("fine")
