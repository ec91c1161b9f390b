"""The cells that were only in tf.contrib.rnn compute what they are defined to."""

import numpy as np
import tensorflow as tf

rnn = tf.contrib.rnn
draw = np.random.RandomState(0)
ROWS = draw.randn(2, 3, 6).astype(np.float32)
FILMS = draw.randn(2, 3, 5, 5, 2).astype(np.float32)


def sigmoid(value):
    return 1 / (1 + np.exp(-value))


def unroll(cell, inputs):
    with tf.variable_scope(None, "here") as scope:
        outputs, _ = tf.nn.dynamic_rnn(cell, tf.constant(inputs), dtype=tf.float32)
    variables = tf.trainable_variables(scope.name)
    assert None not in tf.gradients(outputs, variables)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        values = {v.op.name.split("/")[-1]: sess.run(v) for v in variables}
        return sess.run(outputs), values


cell = rnn.Conv2DLSTMCell(
    input_shape=[5, 5, 2], output_channels=4, kernel_shape=[1, 1], skip_connection=True
)
found, values = unroll(cell, FILMS)
c = h = np.zeros((2, 5, 5, 4))
for step in range(3):
    gates = np.concatenate([FILMS[:, step], h], -1) @ values["kernel"][0, 0] + values["biases"]
    i, j, f, o = np.split(gates, 4, -1)
    c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j)
    h = np.tanh(c) * sigmoid(o)
    expected = np.concatenate([h, FILMS[:, step]], -1)
    np.testing.assert_allclose(found[:, step], expected, atol=1e-5)

found, values = unroll(rnn.CoupledInputForgetGateLSTMCell(4, use_peepholes=True), ROWS)
c = h = np.zeros((2, 4))
for step in range(3):
    gates = np.concatenate([ROWS[:, step], h], -1) @ values["W_0"] + values["B"]
    j, f, o = np.split(gates, 3, -1)
    keep = sigmoid(f + values["w_f_diag"] * c + 1)
    c = keep * c + (1 - keep) * np.tanh(j)
    h = sigmoid(o + values["w_o_diag"] * c) * np.tanh(c)
    np.testing.assert_allclose(found[:, step], h, atol=1e-5)

for cell, width in (
    (rnn.NASCell(4), 4),
    (rnn.NASCell(4, num_proj=3, use_biases=True), 3),
    (rnn.AttentionCellWrapper(rnn.BasicLSTMCell(4), attn_length=3), 4),
    (rnn.MultiRNNCell([rnn.GRUCell(6), rnn.HighwayWrapper(rnn.GRUCell(6))]), 6),
):
    found, _ = unroll(cell, ROWS)
    assert found.shape == (2, 3, width), found.shape

print("fine")
