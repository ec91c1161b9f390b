"""Names from the places where TensorFlow 1 kept them, and what programs make of them."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib.keras.python.keras.layers import Dense
from tensorflow.contrib.layers import scale_gradient
from tensorflow.contrib.seq2seq.python.ops.attention_wrapper import (
    AttentionWrapper,
    BahdanauAttention,
)
from tensorflow.python import array_ops
from tensorflow.python.framework import tensor_shape
from tensorflow.python.keras._impl.keras import backend
from tensorflow.python.keras.engine import InputSpec, Layer
from tensorflow.python.ops.nn import dynamic_rnn
from tensorflow.python.ops.rnn_cell_impl import _LayerRNNCell, _Linear
from tensorflow.python.tpu import tpu_config, tpu_estimator
from tensorflow.tensorboard.plugins import projector
from tensorflow_estimator import estimator

assert estimator.Estimator is tf.estimator.Estimator
assert tpu_estimator.TPUEstimator is tf.contrib.tpu.TPUEstimator
assert tpu_config.TPUConfig is tf.contrib.tpu.TPUConfig
assert tensor_shape.scalar().as_list() == []
assert issubclass(Dense, Layer)
assert all([array_ops.concat, backend.get_session, InputSpec, _LayerRNNCell, projector])


class Stepwise(BahdanauAttention):
    """Looks where it looked before, too."""

    def __call__(self, query, state):
        wanted = tf.expand_dims(self.query_layer(query), 1)
        energy = tf.reduce_sum(tf.tanh(self.keys + wanted), [2]) + state
        alignments = self._probability_fn(energy, state)
        return alignments, alignments + state


class Gate(tf.nn.rnn_cell.RNNCell):
    """A cell whose two uses of one product share its weights."""

    state_size = output_size = 3

    def call(self, inputs, state):
        with tf.variable_scope("gate"):
            product = _Linear([inputs, state], 3, True, bias_initializer=tf.ones_initializer())
        state = product([inputs, state]) - product([inputs, state]) + 1
        return state, state


memory = tf.constant(np.random.RandomState(0).rand(2, 4, 3), tf.float32)
cell = AttentionWrapper(Gate(), Stepwise(5, memory, [4, 2]), alignment_history=True)
_, state = dynamic_rnn(cell, memory, dtype=tf.float32, swap_memory=True)
names = {variable.op.name for variable in tf.trainable_variables()}
assert "rnn/attention_wrapper/gate/gate/kernel" in names, names

loop = tf.nn.seq2seq._extract_argmax_and_embed(tf.eye(3), update_embedding=False)
fed = loop(tf.constant([[0.0, 2.0, 1.0]]), 0)

x = tf.constant([[1.0, 5.0, 3.0], [2.0, 8.0, 9.0]])
(slope,) = tf.gradients(scale_gradient(x, 0.25), x)
percentile = tf.contrib.distributions.percentile
many = tf.random_normal([20000], seed=1)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    alignments = sess.run(state.alignments)
    assert np.allclose(alignments.sum(1), 1)
    assert not alignments[1, 2:].any()
    assert sess.run(fed).tolist() == [[0, 1, 0]]
    assert (sess.run(slope) == 0.25).all()
    assert sess.run(percentile(x, 50.0)) == 3
    assert sess.run(percentile(x, 100, axis=1, keep_dims=True)).tolist() == [[5], [9]]
    assert sess.run(percentile(x, 30.0, [0], "higher")).tolist() == [2, 8, 9]
    mean, variance = sess.run(tf.nn.moments(tf.contrib.nn.alpha_dropout(many, 0.8, seed=1), 0))
    assert abs(mean) < 0.1
    assert abs(variance - 1) < 0.1
print("fine")
