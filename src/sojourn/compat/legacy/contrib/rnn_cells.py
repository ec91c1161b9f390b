"""The cells that existed only in `tf.contrib.rnn`."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy.cells import LSTMStateTuple, RNNCell, Wrapper, linear


class ConvLSTMCell(RNNCell):  # type: ignore[misc]
    """A convolutional LSTM: its state is an image, and one convolution computes its gates."""

    def __init__(
        self,
        conv_ndims: int,
        input_shape: Any,
        output_channels: int,
        kernel_shape: Any,
        use_bias: bool = True,
        skip_connection: bool = False,
        forget_bias: float = 1.0,
        initializers: Any = None,
        name: str = "conv_lstm_cell",
    ) -> None:
        super().__init__(name=name)
        if conv_ndims != len(input_shape) - 1:
            raise ValueError(f"Invalid input_shape {input_shape} for conv_ndims={conv_ndims}.")
        self._channels, self._kernel_shape = output_channels, list(kernel_shape)
        self._use_bias, self._skips, self._forget_bias = use_bias, skip_connection, forget_bias
        self._start = initializers
        self._size = tf.TensorShape([*input_shape[:-1], output_channels])
        width = output_channels + (input_shape[-1] if skip_connection else 0)
        self._output_size = tf.TensorShape([*input_shape[:-1], width])

    @property
    def output_size(self) -> Any:
        return self._output_size

    @property
    def state_size(self) -> Any:
        return LSTMStateTuple(self._size, self._size)

    def call(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        cell, hidden = state
        joined = tf.concat([inputs, hidden], -1)
        shape = [*self._kernel_shape, joined.shape[-1].value, 4 * self._channels]
        start = self._start.get("kernel") if isinstance(self._start, dict) else self._start
        gates = tf.nn.convolution(
            joined, tf.get_variable("kernel", shape, inputs.dtype, start), "SAME"
        )
        if self._use_bias:
            start = self._start.get("bias") if isinstance(self._start, dict) else None
            start = start or tf.zeros_initializer()
            gates += tf.get_variable("biases", shape[-1:], inputs.dtype, start)
        entry, candidate, forget, leave = tf.split(gates, 4, -1)
        cell = tf.sigmoid(forget + self._forget_bias) * cell
        cell += tf.sigmoid(entry) * tf.tanh(candidate)
        output = hidden = tf.tanh(cell) * tf.sigmoid(leave)
        if self._skips:
            output = tf.concat([output, inputs], -1)
        return output, LSTMStateTuple(cell, hidden)


class Conv1DLSTMCell(ConvLSTMCell):
    """A convolutional LSTM over one dimension."""

    def __init__(self, name: str = "conv_1d_lstm_cell", **kwargs: Any) -> None:
        super().__init__(conv_ndims=1, name=name, **kwargs)


class Conv2DLSTMCell(ConvLSTMCell):
    """A convolutional LSTM over two dimensions."""

    def __init__(self, name: str = "conv_2d_lstm_cell", **kwargs: Any) -> None:
        super().__init__(conv_ndims=2, name=name, **kwargs)


class Conv3DLSTMCell(ConvLSTMCell):
    """A convolutional LSTM over three dimensions."""

    def __init__(self, name: str = "conv_3d_lstm_cell", **kwargs: Any) -> None:
        super().__init__(conv_ndims=3, name=name, **kwargs)


class _Projected(RNNCell):  # type: ignore[misc]
    """Base class of cells with an LSTM's state and an optional output projection."""

    def __init__(self, num_units: int, num_proj: int | None, reuse: Any, name: Any) -> None:
        super().__init__(_reuse=reuse, name=name)
        self._num_units, self._num_proj = num_units, num_proj
        self._width = num_proj or num_units

    @property
    def output_size(self) -> int:
        return self._width

    @property
    def state_size(self) -> Any:
        return LSTMStateTuple(self._num_units, self._width)


class CoupledInputForgetGateLSTMCell(_Projected):
    """An LSTM whose input gate is one minus its forget gate."""

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        initializer: Any = None,
        num_proj: int | None = None,
        proj_clip: float | None = None,
        num_unit_shards: int = 1,
        num_proj_shards: int = 1,
        forget_bias: float = 1.0,
        state_is_tuple: bool = True,
        activation: Any = tf.tanh,
        reuse: Any = None,
        layer_norm: bool = False,
        name: str | None = None,
        **rest: Any,
    ) -> None:
        if layer_norm or not state_is_tuple or num_unit_shards != 1 or num_proj_shards != 1:
            raise NotImplementedError(
                "CoupledInputForgetGateLSTMCell with layer_norm, shards or a state that is no tuple"
            )
        super().__init__(num_units, num_proj, reuse, name)
        self._peeps, self._start, self._clip = use_peepholes, initializer, proj_clip
        self._forget_bias, self._activation = forget_bias, activation

    def call(self, inputs: Any, state: Any) -> Any:
        cell, hidden = state
        units, kind, act = self._num_units, inputs.dtype, self._activation
        with tf.variable_scope(tf.get_variable_scope(), initializer=self._start):
            shape = [inputs.shape[1].value + self._width, 3 * units]
            weights = tf.get_variable("W_0", shape, kind)
            bias = tf.get_variable("B", shape[1:], kind, tf.zeros_initializer())
            gates = tf.nn.bias_add(tf.matmul(tf.concat([inputs, hidden], 1), weights), bias)
            candidate, forget, leave = tf.split(gates, 3, 1)
            if self._peeps:
                forget += tf.get_variable("w_f_diag", [units], kind) * cell
            keep = tf.sigmoid(forget + self._forget_bias)
            cell = keep * cell + (1 - keep) * act(candidate)
            if self._peeps:
                leave += tf.get_variable("w_o_diag", [units], kind) * cell
            hidden = tf.sigmoid(leave) * act(cell)
            if self._num_proj is not None:
                hidden = tf.matmul(hidden, tf.get_variable("W_P_0", [units, self._num_proj], kind))
                if self._clip is not None:
                    hidden = tf.clip_by_value(hidden, -self._clip, self._clip)
        return hidden, LSTMStateTuple(cell, hidden)


class NASCell(_Projected):
    """The recurrent cell found by neural architecture search (NAS)."""

    def __init__(
        self,
        num_units: int,
        num_proj: int | None = None,
        use_bias: bool = False,
        reuse: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_units, num_proj, reuse, kwargs.get("name"))
        self._use_bias = kwargs.get("use_biases", use_bias)

    def call(self, inputs: Any, state: Any) -> Any:
        cell, hidden = state
        kind, width = inputs.dtype, 8 * self._num_units
        own = tf.get_variable("recurrent_kernel", [self._width, width], kind)
        theirs = tf.get_variable("kernel", [inputs.shape[1].value, width], kind)
        h = tf.matmul(hidden, own)
        if self._use_bias:
            h = tf.nn.bias_add(h, tf.get_variable("bias", [width], kind, tf.zeros_initializer()))
        h = tf.split(h, 8, 1)
        x = tf.split(tf.matmul(inputs, theirs), 8, 1)
        first = tf.sigmoid(x[0] + h[0]) * tf.nn.relu(x[1] + h[1])
        second = tf.sigmoid(x[2] + h[2]) + tf.nn.relu(x[3] * h[3])
        third = tf.tanh(x[4] + h[4]) * tf.sigmoid(x[5] + h[5])
        fourth = tf.tanh(x[6] + h[6]) + tf.sigmoid(x[7] + h[7])
        cell = tf.tanh(tf.tanh(first) + cell) * tf.tanh(second)
        hidden = tf.tanh(cell * tf.tanh(tf.tanh(third) + tf.sigmoid(fourth)))
        if self._num_proj is not None:
            shape = [self._num_units, self._num_proj]
            hidden = tf.matmul(hidden, tf.get_variable("projection_weights", shape, kind))
        return hidden, LSTMStateTuple(cell, hidden)


class AttentionCellWrapper(RNNCell):  # type: ignore[misc]
    """A cell that attends to its own last `attn_length` outputs."""

    def __init__(
        self,
        cell: Any,
        attn_length: int,
        attn_size: int | None = None,
        attn_vec_size: int | None = None,
        input_size: int | None = None,
        state_is_tuple: bool = True,
        reuse: Any = None,
    ) -> None:
        super().__init__(_reuse=reuse)
        if not state_is_tuple:
            raise NotImplementedError("AttentionCellWrapper with state_is_tuple=False")
        self._cell, self._length, self._input_size = cell, attn_length, input_size
        self._size = cell.output_size if attn_size is None else attn_size
        self._vec_size = self._size if attn_vec_size is None else attn_vec_size

    @property
    def state_size(self) -> Any:
        return (self._cell.state_size, self._size, self._size * self._length)

    @property
    def output_size(self) -> int:
        return self._size

    def call(self, inputs: Any, state: Any) -> Any:
        state, attended, past = state
        past = tf.reshape(past, [-1, self._length, self._size])
        size = self._input_size or inputs.shape[1].value
        output, state = self._cell(linear([inputs, attended], size, True), state)
        attended = self._attend(tf.concat(tf.nest.flatten(state), 1), past)
        with tf.variable_scope("attn_output_projection"):
            output = linear([output, attended], self._size, True)
        past = tf.concat([past[:, 1:], tf.expand_dims(output, 1)], 1)
        return output, (state, attended, tf.reshape(past, [-1, self._length * self._size]))

    def _attend(self, query: Any, past: Any) -> Any:
        with tf.variable_scope("attention"):
            key = tf.get_variable("attn_w", [1, 1, self._size, self._vec_size])
            score = tf.get_variable("attn_v", [self._vec_size])
            hidden = tf.expand_dims(past, 2)
            asked = tf.reshape(linear(query, self._vec_size, True), [-1, 1, 1, self._vec_size])
            features = tf.nn.conv2d(hidden, key, [1, 1, 1, 1], "SAME")
            shares = tf.nn.softmax(tf.reduce_sum(score * tf.tanh(features + asked), [2, 3]))
            return tf.reduce_sum(tf.expand_dims(shares, 2) * past, 1)


class HighwayWrapper(Wrapper):
    """Adds a gated highway connection from the input of a cell to its output."""

    def __init__(
        self, cell: Any, couple_carry_transform_gates: bool = True, carry_bias_init: float = 1.0
    ) -> None:
        super().__init__(cell)
        self._coupled, self._bias = couple_carry_transform_gates, carry_bias_init

    def _gate(self, name: str, inputs: Any, bias: float) -> Any:
        width = inputs.shape[-1].value
        weights = tf.get_variable(f"{name}_w", [width, width])
        start = tf.constant_initializer(bias)
        return tf.sigmoid(
            tf.nn.xw_plus_b(inputs, weights, tf.get_variable(f"{name}_b", [width], None, start))
        )

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        output, state = self._cell(inputs, state, scope=scope)
        carry = self._gate("carry", inputs, self._bias)
        passed = 1 - carry if self._coupled else self._gate("transform", inputs, -self._bias)
        return inputs * carry + output * passed, state
