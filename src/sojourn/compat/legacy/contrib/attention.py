"""Attention of `tf.contrib.seq2seq`: two scoring mechanisms and the cell wrapper that uses them."""

from __future__ import annotations

import collections
from abc import ABC, abstractmethod
from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy import layers
from sojourn.compat.legacy.cells import RNNCell

_Dense = layers.namespace().Dense


class AttentionMechanism(ABC):
    """Keys and values of a memory; calling it returns the attention weights of a query."""

    _scope: str  # variable scope in checkpoints, independent of `name`

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Any,
        probability_fn: Any,
        score_mask_value: Any,
        name: str,
    ) -> None:
        self._num_units = num_units
        self._probability = probability_fn or tf.nn.softmax
        self._length = self._memory_sequence_length = memory_sequence_length
        self._mask_value = float("-inf") if score_mask_value is None else score_mask_value
        with tf.name_scope(name):
            self.values = memory = tf.convert_to_tensor(memory)
            if memory_sequence_length is not None:
                mask = tf.sequence_mask(memory_sequence_length, tf.shape(memory)[1], memory.dtype)
                self.values = memory * tf.expand_dims(mask, -1)
        self.memory_layer = _Dense(num_units, name="memory_layer", use_bias=False)
        self.keys = self.memory_layer(self.values)
        self.batch_size = tf.shape(self.keys)[0]
        self.alignments_size = tf.dimension_value(self.keys.shape[1]) or tf.shape(self.keys)[1]

    @property
    def state_size(self) -> Any:
        return self.alignments_size

    def initial_alignments(self, batch_size: Any, dtype: Any) -> Any:
        """Return all zeros: before the first step nothing was attended to."""
        return tf.zeros(tf.stack([batch_size, self.alignments_size]), dtype)

    initial_state = initial_alignments

    @abstractmethod
    def score(self, query: Any) -> Any:
        """Return how well each position of the memory matches the query."""

    def __call__(self, query: Any, state: Any = None, previous_alignments: Any = None) -> Any:
        with tf.variable_scope(None, self._scope, [query]):
            alignments = self._probability_fn(self.score(query), state)
        return alignments, alignments

    def _probability_fn(self, score: Any, previous_alignments: Any) -> Any:
        """Mask scores past the end and turn them into weights. Programs' subclasses call it too."""
        if self._length is not None:
            mask = tf.sequence_mask(self._length, tf.shape(score)[1])
            score = tf.where(mask, score, self._mask_value * tf.ones_like(score))
        return self._probability(score)


class BahdanauAttention(AttentionMechanism):
    """Additive attention: a small network computes the scores."""

    _scope = "bahdanau_attention"

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Any = None,
        normalize: bool = False,
        probability_fn: Any = None,
        score_mask_value: Any = None,
        dtype: Any = None,
        custom_key_value_fn: Any = None,
        name: str = "BahdanauAttention",
    ) -> None:
        super().__init__(
            num_units, memory, memory_sequence_length, probability_fn, score_mask_value, name
        )
        self.query_layer = _Dense(num_units, name="query_layer", use_bias=False)
        self._normalize = normalize

    def score(self, query: Any) -> Any:
        wanted = tf.expand_dims(self.query_layer(query), 1)
        weights = tf.get_variable("attention_v", [self._num_units], dtype=query.dtype)
        if not self._normalize:
            return tf.reduce_sum(weights * tf.tanh(self.keys + wanted), [2])
        start = tf.constant_initializer((1.0 / self._num_units) ** 0.5)
        scale = tf.get_variable("attention_g", [], query.dtype, initializer=start)
        bias = tf.get_variable(
            "attention_b", [self._num_units], query.dtype, initializer=tf.zeros_initializer()
        )
        unit = scale * weights * tf.rsqrt(tf.reduce_sum(tf.square(weights)))
        return tf.reduce_sum(unit * tf.tanh(self.keys + wanted + bias), [2])


class LuongAttention(AttentionMechanism):
    """Multiplicative attention: scores are dot products; the query must be `num_units` wide."""

    query_layer = None
    _scope = "luong_attention"

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Any = None,
        scale: bool = False,
        probability_fn: Any = None,
        score_mask_value: Any = None,
        dtype: Any = None,
        custom_key_value_fn: Any = None,
        name: str = "LuongAttention",
    ) -> None:
        super().__init__(
            num_units, memory, memory_sequence_length, probability_fn, score_mask_value, name
        )
        self._scale = scale

    def score(self, query: Any) -> Any:
        found = tf.squeeze(tf.matmul(tf.expand_dims(query, 1), self.keys, transpose_b=True), [1])
        if not self._scale:
            return found
        return found * tf.get_variable(
            "attention_g", [], query.dtype, initializer=tf.ones_initializer()
        )


class AttentionWrapperState(
    collections.namedtuple(
        "AttentionWrapperState",
        ("cell_state", "attention", "time", "alignments", "alignment_history", "attention_state"),
    )
):
    """The state that an `AttentionWrapper` carries from step to step."""

    __slots__ = ()

    def clone(self, **changes: Any) -> AttentionWrapperState:
        """Return a copy with the given fields replaced."""
        return self._replace(**changes)


class AttentionWrapper(RNNCell):  # type: ignore[misc]
    """A cell wrapper that adds the attention of the previous step to the cell's input."""

    def __init__(
        self,
        cell: Any,
        attention_mechanism: Any,
        attention_layer_size: Any = None,
        alignment_history: bool = False,
        cell_input_fn: Any = None,
        output_attention: bool = True,
        initial_cell_state: Any = None,
        name: Any = None,
        attention_layer: Any = None,
    ) -> None:
        super().__init__(name=name)
        self._many = isinstance(attention_mechanism, (list, tuple))
        self._mechanisms = _listed(attention_mechanism)
        self._cell, self._history = cell, alignment_history
        self._input_fn = cell_input_fn or (lambda inputs, seen: tf.concat([inputs, seen], -1))
        self._output_attention, self._first_state = output_attention, initial_cell_state
        if attention_layer_size is not None:
            self._layers = [
                _Dense(size, name="attention_layer", use_bias=False)
                for size in _listed(attention_layer_size)
            ]
        else:
            self._layers = _listed(attention_layer) if attention_layer is not None else []
        if len(self._layers) not in (0, len(self._mechanisms)):
            raise ValueError("there must be one attention layer for each attention mechanism")

    @property
    def _attention_size(self) -> int:
        if self._layers:
            return sum(int(layer.units) for layer in self._layers)
        return sum(tf.dimension_value(m.values.shape[-1]) for m in self._mechanisms)

    @property
    def output_size(self) -> Any:
        return self._attention_size if self._output_attention else self._cell.output_size

    @property
    def state_size(self) -> Any:
        sizes = self._either([m.alignments_size for m in self._mechanisms])
        history = sizes if self._history else self._either([()] * len(self._mechanisms))
        return AttentionWrapperState(
            self._cell.state_size,
            self._attention_size,
            tf.TensorShape([]),
            sizes,
            history,
            sizes,
        )

    def _either(self, values: list[Any]) -> Any:
        return tuple(values) if self._many else values[0]

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Return the state before the first step."""
        first = self._first_state
        if first is None:
            first = self._cell.zero_state(batch_size, dtype)
        start = [m.initial_alignments(batch_size, dtype) for m in self._mechanisms]
        history: list[Any] = [()] * len(start)
        if self._history:
            history = [tf.TensorArray(dtype, 0, dynamic_size=True) for _ in start]
        return AttentionWrapperState(
            first,
            tf.zeros(tf.stack([batch_size, self._attention_size]), dtype),
            tf.zeros([], tf.int32),
            self._either(start),
            self._either(history),
            self._either(start),
        )

    def call(self, inputs: Any, state: Any) -> Any:
        output, cell_state = self._cell(self._input_fn(inputs, state.attention), state.cell_state)
        found, aligned, states = [], [], []
        for index, mechanism in enumerate(self._mechanisms):
            before = state.attention_state[index] if self._many else state.attention_state
            alignments, after = mechanism(output, state=before)
            context = tf.squeeze(tf.matmul(tf.expand_dims(alignments, 1), mechanism.values), [1])
            if self._layers:
                context = self._layers[index](tf.concat([output, context], 1))
            found.append(context)
            aligned.append(alignments)
            states.append(after)
        history = state.alignment_history
        if self._history:
            arrays = history if self._many else [history]
            written = [
                array.write(state.time, each) for array, each in zip(arrays, aligned, strict=True)
            ]
            history = self._either(written)
        attention = tf.concat(found, 1)
        later = AttentionWrapperState(
            cell_state,
            attention,
            state.time + 1,
            self._either(aligned),
            history,
            self._either(states),
        )
        return (attention if self._output_attention else output), later


DynamicAttentionWrapperState = collections.namedtuple(
    "DynamicAttentionWrapperState", ("cell_state", "attention")
)


class DynamicAttentionWrapper(AttentionWrapper):
    """`AttentionWrapper` as in TensorFlow 1.1, with a smaller state."""

    def __init__(
        self,
        cell: Any,
        attention_mechanism: Any,
        attention_size: int,
        cell_input_fn: Any = None,
        probability_fn: Any = None,
        output_attention: bool = True,
        name: Any = None,
    ) -> None:
        super().__init__(
            cell,
            attention_mechanism,
            attention_size,
            cell_input_fn=cell_input_fn,
            output_attention=output_attention,
            name=name,
        )
        if probability_fn is not None:
            attention_mechanism._probability = probability_fn

    @property
    def state_size(self) -> Any:
        return DynamicAttentionWrapperState(self._cell.state_size, self._attention_size)

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        state = super().zero_state(batch_size, dtype)
        return DynamicAttentionWrapperState(state.cell_state, state.attention)

    def call(self, inputs: Any, state: Any) -> Any:
        whole = AttentionWrapperState(
            state.cell_state, state.attention, tf.zeros([], tf.int32), (), (), None
        )
        output, later = super().call(inputs, whole)
        return output, DynamicAttentionWrapperState(later.cell_state, later.attention)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def hardmax(logits: Any, name: Any = None) -> Any:
    """Return 1 at the largest value of each row, 0 elsewhere."""
    width = tf.dimension_value(logits.shape[-1]) or tf.shape(logits)[-1]
    return tf.one_hot(tf.argmax(logits, -1), width, dtype=logits.dtype)
