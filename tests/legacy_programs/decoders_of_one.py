"""Decoding as it was before TensorFlow 1.2: functions that a loop asks, and smaller wrappers."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib import seq2seq

BATCH, TIME, WORDS, WIDTH = 2, 4, 3, 5
rng = np.random.RandomState(0)
inputs = tf.constant(rng.randn(BATCH, TIME, WIDTH).astype(np.float32))
lengths = tf.constant([4, 2])
start = tf.constant(rng.randn(BATCH, WIDTH).astype(np.float32))

# Fed what is right, the loop is an unrolled cell.
cell = tf.contrib.rnn.GRUCell(WIDTH)
with tf.variable_scope("plain") as scope:
    unrolled = tf.nn.dynamic_rnn(cell, inputs, lengths, initial_state=start, scope=scope)
    scope.reuse_variables()
    fed = seq2seq.dynamic_rnn_decoder(
        cell, seq2seq.simple_decoder_fn_train(start), inputs, lengths, scope=scope
    )

# Fed what it said, it follows the likeliest word until the last one, and is zero after that.
follows = np.array([[0, 9, 1], [1, 0, 9], [9, 1, 0]], np.float32)


class Pairs(tf.nn.rnn_cell.RNNCell):
    state_size, output_size = 1, 3

    def call(self, inputs, state):
        return tf.matmul(inputs, follows), state + 1


def said_until(last, longest):
    asked = seq2seq.simple_decoder_fn_inference(
        None, tf.zeros([BATCH, 1]), tf.eye(3), 0, last, longest, WORDS
    )
    return seq2seq.dynamic_rnn_decoder(Pairs(), asked)[0]


until_two, for_long = said_until(2, 9), said_until(7, 3)

# With attention, the words that are fed come beside what was found in the memory.
memory = rng.randn(BATCH, 3, WIDTH).astype(np.float32)


def attends(kind):
    with tf.variable_scope(kind) as scope:
        looks = seq2seq.prepare_attention(tf.constant(memory), kind, WIDTH)
        taught = seq2seq.attention_decoder_fn_train(start, *looks)
        seen = seq2seq.dynamic_rnn_decoder(
            tf.contrib.rnn.GRUCell(WIDTH), taught, inputs, lengths, scope=scope
        )
        scope.reuse_variables()
        table = tf.ones([WORDS, WIDTH])
        free = seq2seq.attention_decoder_fn_inference(
            lambda outputs: outputs[:, :WORDS], start, *looks, table, 0, 9, TIME, WORDS
        )
        cell = tf.contrib.rnn.GRUCell(WIDTH)
        said = seq2seq.dynamic_rnn_decoder(cell, free, scope=scope)
        return seen[0], said[0], looks[2](start, looks[0], looks[1]), looks[0]


luong, bahdanau = attends("luong"), attends("bahdanau")

# The wrapper of 1.1 is that of today with less to remember, and a decoder gave no lengths.
mechanism = seq2seq.LuongAttention(WIDTH, tf.constant(memory), [3, 1])
results = []
for reuse, wrapper in ((None, "DynamicAttentionWrapper"), (True, "AttentionWrapper")):
    with tf.variable_scope("wrapped", reuse=reuse):
        around = getattr(seq2seq, wrapper)(
            tf.contrib.rnn.GRUCell(WIDTH), mechanism, 6, name="around"
        )
        zero = around.zero_state(BATCH, tf.float32)
        if reuse is None:
            zero = seq2seq.DynamicAttentionWrapperState(start, zero.attention)
        else:
            zero = zero.clone(cell_state=start)
        helper = seq2seq.TrainingHelper(inputs, lengths)
        outputs, state = seq2seq.dynamic_decode(seq2seq.BasicDecoder(around, helper, zero))
        results.append(outputs.rnn_output)

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for one, other in zip(*sess.run([unrolled, fed[:2]]), strict=True):
        assert np.allclose(one, other, atol=1e-6)
    # The step after the last word is there, and its outputs are what the cell said.
    assert sess.run(until_two)[0].argmax(1).tolist()[:2] == [1, 2]
    assert sess.run(for_long)[1].argmax(1).tolist()[:4] == [1, 2, 0, 1]
    for seen, said in (luong[:2], bahdanau[:2]):
        assert sess.run(seen).shape == (BATCH, TIME, WIDTH)
        assert not sess.run(seen)[1, 2:].any()
        assert sess.run(said).shape == (BATCH, TIME + 1, WORDS)
    query, keys, found = sess.run([start, luong[3], luong[2]])
    scores = np.exp(np.einsum("btw,bw->bt", keys, query))
    weighed = np.einsum("bt,btw->bw", scores / scores.sum(1, keepdims=True), memory)
    assert np.allclose(found, weighed, atol=1e-5)
    assert np.allclose(*sess.run(results), atol=1e-6)
names = {v.op.name for v in tf.trainable_variables() if v.op.name.startswith("bahdanau")}
assert {f"bahdanau/attention_score/attn{each}" for each in "WV"} < names
assert {f"bahdanau/attention_{each}/weights" for each in ("keys", "construct")} < names
assert len(names) == 4 + 4
print("fine")
