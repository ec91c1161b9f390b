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
with tf.variable_scope("beams"):
    tiled, tiled_lengths = seq2seq.tile_batch((memory, tf.constant([3, 1])), 3)
    looking = seq2seq.AttentionWrapper(
        tf.contrib.rnn.BasicLSTMCell(7),
        seq2seq.BahdanauAttention(7, tiled, tiled_lengths, normalize=True),
        attention_layer_size=6,
        alignment_history=True,
    )
    searched, searched_state, _ = seq2seq.dynamic_decode(
        seq2seq.BeamSearchDecoder(
            looking,
            words,
            tf.fill([BATCH], 0),
            WORDS + 1,
            looking.zero_state(BATCH * 3, tf.float32),
            3,
            Dense(WORDS, use_bias=False),
            length_penalty_weight=0.6,
        ),
        maximum_iterations=5,
    )


# Never drawn, the right words are fed; always drawn, what was said is; both through one cell.
def embed(ids):
    return tf.nn.embedding_lookup(words, ids % WORDS)


never, always = (
    seq2seq.dynamic_decode(
        seq2seq.BasicDecoder(
            cell, seq2seq.ScheduledEmbeddingTrainingHelper(embedded, lengths, embed, chance), start
        ),
        impute_finished=True,
    )[0]
    for chance in (0.0, 1.0)
)
ones = tf.ones([BATCH, TIME, 5])
echo = seq2seq.ScheduledOutputTrainingHelper(ones, lengths, 1.0, next_inputs_fn=lambda o: o[:, :5])
echoed = seq2seq.dynamic_decode(seq2seq.BasicDecoder(cell, echo, start))[0]
alone = seq2seq.InferenceHelper(
    lambda outputs: outputs[:, :5],
    [5],
    tf.float32,
    ones[:, 0],
    lambda sampled: tf.fill([BATCH], False),
)
heard = seq2seq.dynamic_decode(seq2seq.BasicDecoder(cell, alone, start), maximum_iterations=TIME)[0]
doubled = seq2seq.tile_batch(tf.constant([[1], [2]]), 2)

# Beams that are wide enough hold everything that can be said, the likeliest first.
follows = np.log(rng.dirichlet([1, 1, 1], 3)).astype(np.float32)
END = 2


class Pairs(tf.nn.rnn_cell.RNNCell):
    """Says the next word by the last one alone, and adds up what it was fed."""

    state_size, output_size = 1, 3

    def call(self, inputs, state):
        return tf.matmul(inputs, follows), state + tf.matmul(inputs, [[1.0], [10.0], [100.0]])


pairs = Pairs()
wide, wide_state, wide_lengths = seq2seq.dynamic_decode(
    seq2seq.BeamSearchDecoder(
        pairs, tf.eye(3), tf.constant([0, 1]), END, pairs.zero_state(2 * 9, tf.float32), 9
    ),
    maximum_iterations=3,
)


def ways_from(start):
    """Each sequence that ends or has three words, by how likely it is."""
    ways = {}
    for said in itertools.product(range(3), repeat=3):
        said = said[: said.index(END) + 1] if END in said else said
        ways[said] = sum(follows[pair] for pair in itertools.pairwise((start, *said)))
    return sorted(ways, key=ways.get, reverse=True)[:9]


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
    one, other = sess.run([never, always])
    assert np.allclose(one.rnn_output, sess.run(plain.rnn_output), atol=1e-6)
    assert (one.sample_id[0] == -1).all()
    assert (other.sample_id[0] >= 0).all()
    one, other = sess.run([echoed.rnn_output, heard.rnn_output])
    assert np.allclose(one, other, atol=1e-6)
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
    ids, seen = sess.run([searched.predicted_ids, searched_state.cell_state.alignment_history])
    assert ids.shape == (BATCH, 5, 3)
    assert seen.shape == (5, BATCH * 3, 3)
    assert not seen[:, 3:, 1:].any()
    ids, sums, ends = sess.run([wide.predicted_ids, wide_state.cell_state, wide_lengths])
    for row in range(2):
        for beam, said in enumerate(ways_from(row)):
            assert tuple(ids[row, :, beam]) == said + (END,) * (3 - len(said))
            assert ends[row, beam] == len(said)
            if len(said) == 3:
                fed = (row, *said[:2])
                assert sums[row, beam] == sum(10**word for word in fed)
    tags, value = sess.run([decoded, best])
    right = max(itertools.product(range(3), repeat=4), key=score)
    assert tuple(tags[0]) == right
    assert tags[1].tolist() == [scores[1, 0].argmax(), 0, 0, 0]
    assert np.allclose(value, [score(right), scores[1, 0].max()], atol=1e-4)
print("fine")
