"""`tf.contrib.rnn`: the cells and the functions that unroll them."""

from __future__ import annotations

import sys
from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy import cells, removed
from sojourn.compat.legacy.cells import GRUCell, LSTMCell, LSTMStateTuple, RNNCell, linear
from sojourn.compat.legacy.contrib import fused_rnn, rnn_cells
from sojourn.compat.legacy.contrib.decoding import swap_batch_and_time
from sojourn.compat.legacy.namespaces import adopt

static_rnn = tf.nn.static_rnn
static_bidirectional_rnn = tf.nn.static_bidirectional_rnn
static_state_saving_rnn = tf.nn.static_state_saving_rnn


class LSTMBlockCell(LSTMCell):  # type: ignore[misc]
    """An LSTM cell; contrib's fused kernel computed the same result."""

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: Any = None,
        use_peephole: bool = False,
        dtype: Any = None,
        reuse: Any = None,
        name: str = "lstm_cell",
    ) -> None:
        super().__init__(
            num_units,
            use_peepholes=use_peephole,
            cell_clip=cell_clip,
            forget_bias=forget_bias,
            dtype=dtype,
            reuse=reuse,
            name=name,
        )


class GRUBlockCell(GRUCell):  # type: ignore[misc]
    """A GRU cell; contrib's fused kernel computed the same result."""

    def __init__(self, num_units: Any = None, cell_size: Any = None, **kwargs: Any) -> None:
        super().__init__(cell_size if num_units is None else num_units, **kwargs)


GRUBlockCellV2 = GRUBlockCell


class LayerNormBasicLSTMCell(RNNCell):  # type: ignore[misc]
    """An LSTM cell that normalizes its gates, with dropout on the candidate."""

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        input_size: Any = None,
        activation: Any = tf.tanh,
        layer_norm: bool = True,
        norm_gain: float = 1.0,
        norm_shift: float = 0.0,
        dropout_keep_prob: Any = 1.0,
        dropout_prob_seed: Any = None,
        reuse: Any = None,
    ) -> None:
        super().__init__(_reuse=reuse)
        self._num_units, self._forget_bias, self._activation = num_units, forget_bias, activation
        self._layer_norm, self._gain, self._shift = layer_norm, norm_gain, norm_shift
        self._keep_prob, self._seed = dropout_keep_prob, dropout_prob_seed

    @property
    def state_size(self) -> Any:
        return LSTMStateTuple(self._num_units, self._num_units)

    @property
    def output_size(self) -> int:
        return self._num_units

    def _norm(self, value: Any, name: str) -> Any:
        with tf.variable_scope(name):
            shape = value.shape[-1:]
            gamma = tf.get_variable("gamma", shape, initializer=tf.constant_initializer(self._gain))
            beta = tf.get_variable("beta", shape, initializer=tf.constant_initializer(self._shift))
            mean, variance = tf.nn.moments(value, [1], keep_dims=True)
            return tf.nn.batch_normalization(value, mean, variance, beta, gamma, 1e-12)

    def call(self, inputs: Any, state: Any) -> Any:
        c, h = state
        gates = linear([inputs, h], 4 * self._num_units, not self._layer_norm)
        i, j, f, o = tf.split(gates, 4, 1)
        if self._layer_norm:
            names = ("input", "transform", "forget", "output")
            i, j, f, o = (self._norm(g, n) for g, n in zip((i, j, f, o), names, strict=True))
        candidate = self._activation(j)
        if not isinstance(self._keep_prob, float) or self._keep_prob < 1:
            candidate = tf.nn.dropout(candidate, self._keep_prob, seed=self._seed)
        c = c * tf.sigmoid(f + self._forget_bias) + tf.sigmoid(i) * candidate
        if self._layer_norm:
            c = self._norm(c, "state")
        h = self._activation(c) * tf.sigmoid(o)
        return h, LSTMStateTuple(c, h)


def stack_bidirectional_dynamic_rnn(
    cells_fw: Any,
    cells_bw: Any,
    inputs: Any,
    initial_states_fw: Any = None,
    initial_states_bw: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    parallel_iterations: Any = None,
    time_major: bool = False,
    scope: Any = None,
) -> Any:
    """Stack bidirectional layers; each reads both directions of the layer below."""
    count = len(cells_fw)
    starts = zip(
        cells_fw,
        cells_bw,
        initial_states_fw or [None] * count,
        initial_states_bw or [None] * count,
        strict=True,
    )
    ends_fw, ends_bw = [], []
    with tf.variable_scope(scope or "stack_bidirectional_rnn"):
        for index, (forward, backward, first_fw, first_bw) in enumerate(starts):
            with tf.variable_scope(f"cell_{index}"):
                outputs, (end_fw, end_bw) = tf.nn.bidirectional_dynamic_rnn(
                    forward,
                    backward,
                    inputs,
                    initial_state_fw=first_fw,
                    initial_state_bw=first_bw,
                    sequence_length=sequence_length,
                    parallel_iterations=parallel_iterations,
                    dtype=dtype,
                    time_major=time_major,
                )
                inputs = tf.concat(outputs, 2)
            ends_fw.append(end_fw)
            ends_bw.append(end_bw)
    return inputs, tuple(ends_fw), tuple(ends_bw)


transpose_batch_time = swap_batch_and_time
core_rnn_cell = core_rnn = core_rnn_cell_impl = sys.modules[__name__]

globals().update(cells.CELLS)
adopt(globals(), fused_rnn, rnn_cells)
__getattr__ = removed.missing_name("tf.contrib.rnn")
