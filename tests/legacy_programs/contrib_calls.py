"""Calls of contrib in all the forms that programs used, and names that checkpoints hold."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib import crf, seq2seq, slim

w = tf.get_variable("w", [], initializer=tf.ones_initializer())
steps = tf.train.create_global_step()
optimize = tf.contrib.layers.optimize_loss
makers = [
    (0.1, "Momentum"),
    (0.1, tf.train.AdagradOptimizer),
    (0.1, lambda lr: tf.train.MomentumOptimizer(lr, momentum=0.5)),
    (None, lambda: tf.train.GradientDescentOptimizer(0.5)),
    (None, tf.train.AdamOptimizer(0.1)),
]
trains = [optimize(w * w, steps, rate, make) for rate, make in makers]

# The losses: logits or predictions first, and by name.
logits, labels = tf.constant([[2.0, -1.0]]), tf.constant([[1.0, 0.0]])
losses = slim.losses
pairs = {
    "softmax": (
        losses.softmax_cross_entropy(logits=logits, onehot_labels=labels),
        losses.softmax_cross_entropy(logits, labels),
        tf.losses.softmax_cross_entropy(labels, logits),
    ),
    "sigmoid": (
        losses.sigmoid_cross_entropy(logits, multi_class_labels=labels, weights=2.0),
        losses.sigmoid_cross_entropy(logits, labels, 2.0),
        tf.losses.sigmoid_cross_entropy(labels, logits, 2.0),
    ),
    "log": (
        losses.log_loss(predictions=tf.sigmoid(logits), labels=labels),
        losses.log_loss(tf.sigmoid(logits), labels),
        tf.losses.log_loss(labels, tf.sigmoid(logits)),
    ),
}
before = len(tf.losses.get_losses())
hinge = tf.contrib.losses.hinge_loss(logits, labels)
assert len(tf.losses.get_losses()) == before

cell = seq2seq.AttentionWrapper(
    tf.nn.rnn_cell.GRUCell(4), seq2seq.BahdanauAttention(4, tf.zeros([2, 3, 5]), name="mine")
)
cell(tf.zeros([2, 6]), cell.zero_state(2, tf.float32))
product = seq2seq.LuongAttention(4, tf.zeros([2, 3, 5]), scale=True)
product(tf.zeros([2, 4]), product.initial_state(2, tf.float32))
names = [v.op.name for v in tf.global_variables()]
for name in ("bahdanau_attention/attention_v", "bahdanau_attention/query_layer/kernel"):
    assert f"attention_wrapper/{name}" in names, names
assert "luong_attention/attention_g" in names, names

scores = tf.placeholder(tf.float32, [None, None, 3])
lengths = tf.placeholder(tf.int32, [None])
tags, best = crf.crf_decode(scores, tf.zeros([3, 3]), lengths)
norm = crf.crf_log_norm(scores, lengths, tf.zeros([3, 3]))

hparams = tf.contrib.training.HParams(steps=1, rate=0.1, deep=False)
hparams.set_hparam("rate", 2)
refused = 0
for name, value in (("steps", 1.5), ("deep", 1), ("steps", True)):
    try:
        hparams.set_hparam(name, value)
    except ValueError:
        refused += 1
assert refused == 3
assert hparams.parse("steps=3,deep=true").values() == {"steps": 3, "rate": 2.0, "deep": True}

assert np.asfarray([1, 2]).dtype == np.asfarray(["1", "2"]).dtype == np.float64
assert np.asfarray([1], np.float32).dtype == np.float32
assert np.in1d(np.ones((2, 2)), [1]).tolist() == [True] * 4
assert np.in1d([1, 2], [1], invert=True).tolist() == [False, True]

with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for train in trains:
        session.run(train)
    assert session.run(steps) == len(trains)
    for by_name, by_place, core in session.run(list(pairs.values())):
        assert by_name == by_place == core
    assert session.run(hinge).tolist() == [[0, 0]]
    two = np.array([[[0, 5, 1], [1, 0, 9]], [[2, 0, 0], [7, 8, 9]]], np.float32)
    assert session.run(tags, {scores: two, lengths: [2, 1]}).tolist() == [[1, 2], [0, 0]]
    assert session.run(best, {scores: two, lengths: [2, 1]}).tolist() == [14, 2]
    one = {scores: [[[0, 5, 1]]], lengths: [1]}
    assert session.run(tags, one).tolist() == [[1]]
    assert session.run(best, one).tolist() == [5]
    assert np.allclose(session.run(norm, one), np.log(np.exp([0, 5, 1]).sum()))
print("fine")
