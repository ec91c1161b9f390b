"""`tf.layers`, batch normalization, and recurrent cells."""

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_ops, rnn_cell

assert issubclass(tf.Tensor, ops.Tensor)
assert tf.__version__.startswith("1.")

image = tf.placeholder(tf.float32, [None, 8, 8, 1])
training = tf.placeholder(tf.bool, [])
h = tf.layers.conv2d(image, 4, 3, padding="same", activation=tf.nn.relu)
h = tf.layers.max_pooling2d(h, 2, 2)
h = tf.layers.batch_normalization(h, momentum=0.5, training=training)
normalized = h
h = tf.layers.dropout(tf.layers.flatten(h), 0.5, training=training)
with tf.variable_scope("head"):
    first = tf.layers.dense(h, 3, name="out")
    again = tf.layers.dense(h, 3, name="out", reuse=True)
updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
assert len(updates) == 2, updates
assert sorted(v.op.name for v in tf.trainable_variables()) == [
    "batch_normalization/beta",
    "batch_normalization/gamma",
    "conv2d/bias",
    "conv2d/kernel",
    "head/out/bias",
    "head/out/kernel",
]

sequence = tf.placeholder(tf.float32, [None, 5, 6])
stack = tf.nn.rnn_cell.MultiRNNCell([tf.nn.rnn_cell.DropoutWrapper(rnn_cell.GRUCell(7))] * 2)
outputs, state = tf.nn.dynamic_rnn(stack, sequence, dtype=tf.float32)
kernels = [v.shape.as_list() for v in tf.trainable_variables() if "gates/kernel" in v.op.name]
assert kernels == [[13, 14], [14, 14]], kernels  # two layers, not one used twice

loop = control_flow_ops.while_loop(lambda i: i < 5, lambda i: i + 1, [tf.constant(0)])

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    batch = np.random.RandomState(0).rand(16, 8, 8, 1) * 3 + 1
    one, two = sess.run([first, again], {image: batch, training: False})
    assert np.array_equal(one, two)
    for _ in range(30):
        sess.run(updates, {image: batch, training: True})
    # Once the averages have settled, both modes agree; in inference nothing moves them.
    seen = sess.run(normalized, {image: batch, training: True})
    kept = sess.run(normalized, {image: batch, training: False})
    assert np.allclose(seen, kept, atol=1e-3)
    assert abs(seen.mean()) < 1e-3
    before = sess.run(tf.global_variables())
    sess.run(updates, {image: batch + 9, training: False})
    for a, b in zip(before, sess.run(tf.global_variables()), strict=True):
        assert np.array_equal(a, b)
    assert sess.run(outputs, {sequence: np.ones([2, 5, 6])}).shape == (2, 5, 7)
    assert sess.run(loop) == 5
print("fine")
