"""Beam search of `tf.contrib.seq2seq`: a decoder that keeps each example's likeliest sequences."""

from __future__ import annotations

import collections
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.util import nest

from sojourn.compat.legacy.contrib.decoding import Decoder, embedder

BeamSearchDecoderOutput = collections.namedtuple(
    "BeamSearchDecoderOutput", ("scores", "predicted_ids", "parent_ids")
)
BeamSearchDecoderState = collections.namedtuple(
    "BeamSearchDecoderState",
    ("cell_state", "log_probs", "finished", "lengths", "accumulated_attention_probs"),
)
FinalBeamSearchDecoderOutput = collections.namedtuple(
    "FinalBeamSearchDecoderOutput", ("predicted_ids", "beam_search_decoder_output")
)


class BeamSearchDecoder(Decoder):
    """Keeps `beam_width` sequences per example; the cell state has one row for each beam."""

    tracks_own_finished = True  # each step reorders the beams with their finished flags

    def __init__(
        self,
        cell: Any,
        embedding: Any,
        start_tokens: Any,
        end_token: Any,
        initial_state: Any,
        beam_width: int,
        output_layer: Any = None,
        length_penalty_weight: Any = 0.0,
        coverage_penalty_weight: Any = 0.0,
        reorder_tensor_arrays: bool = True,
    ) -> None:
        if isinstance(coverage_penalty_weight, tf.Tensor) or coverage_penalty_weight:
            raise NotImplementedError("BeamSearchDecoder has no coverage_penalty_weight here")
        self._cell, self._output_layer, self._width = cell, output_layer, beam_width
        self._embed = embedder(embedding)
        self._start_tokens = tf.convert_to_tensor(start_tokens, tf.int32)
        self._end_token = tf.convert_to_tensor(end_token, tf.int32)
        self._penalty, self._reorders = length_penalty_weight, reorder_tensor_arrays
        self.batch_size = tf.size(self._start_tokens)
        self._batch = tf.dimension_value(self._start_tokens.shape[0])
        self._initial_cell_state = self._each(self._split, initial_state)
        self._start_inputs = self._embed(tf.tile(self._start_tokens[:, None], [1, beam_width]))

    @property
    def output_size(self) -> Any:
        return BeamSearchDecoderOutput(*[tf.TensorShape([self._width])] * 3)

    @property
    def output_dtype(self) -> Any:
        return BeamSearchDecoderOutput(
            nest.flatten(self._initial_cell_state)[0].dtype, tf.int32, tf.int32
        )

    def initialize(self, name: Any = None) -> Any:
        """Return the start state. Only the first beam is active: all beams start identical, so the
        others would yield duplicates."""
        first = tf.one_hot(tf.zeros_like(self._start_tokens), self._width, True, False, dtype=bool)
        dtype = self.output_dtype.scores
        log_probs = tf.where(first, tf.zeros_like(first, dtype), _never(first, dtype))
        finished = tf.logical_not(first)
        lengths = tf.zeros_like(first, tf.int64)
        state = BeamSearchDecoderState(self._initial_cell_state, log_probs, finished, lengths, ())
        return finished, self._start_inputs, state

    def step(self, time: Any, inputs: Any, state: Any, name: Any = None) -> Any:
        with tf.name_scope(name or "BeamSearchDecoderStep"):
            outputs, cell_state = self._cell(
                nest.map_structure(self._merge, inputs), self._each(self._merge, state.cell_state)
            )
            if self._output_layer is not None:
                outputs = self._output_layer(outputs)
            log_probs = tf.nn.log_softmax(self._split(outputs))
            found, state = self._search(log_probs, self._each(self._split, cell_state), state)
            inputs = tf.cond(
                tf.reduce_all(state.finished),
                lambda: self._start_inputs,
                lambda: self._embed(found.predicted_ids),
            )
            inputs.set_shape(self._start_inputs.shape)
        return found, state, inputs, state.finished

    def _search(self, log_probs: Any, cell_state: Any, state: Any) -> Any:
        """Select the best continuations over all beams of an example; return output and state."""
        words = tf.dimension_value(log_probs.shape[-1]) or tf.shape(log_probs)[-1]
        is_end = tf.equal(tf.range(words), self._end_token)
        ended = tf.where(is_end, tf.zeros_like(is_end, log_probs.dtype), _never(is_end, log_probs))
        done = tf.expand_dims(state.finished, -1)
        log_probs = tf.where_v2(done, ended, log_probs)  # a finished beam repeats only its end
        totals = tf.expand_dims(state.log_probs, -1) + log_probs
        grows = tf.cast(tf.logical_not(tf.logical_or(done, is_end)), tf.int64)
        scores = totals / self._length_penalty(tf.expand_dims(state.lengths, -1) + grows)

        flat = [self.batch_size, self._width * words]
        scores, places = tf.nn.top_k(tf.reshape(scores, flat), self._width)
        ids, parents = tf.mod(places, words), tf.floordiv(places, words)
        was_done = tf.gather(state.finished, parents, batch_dims=1)
        later = BeamSearchDecoderState(
            self._each(lambda value: _chosen(value, parents), cell_state),
            tf.gather(tf.reshape(totals, flat), places, batch_dims=1),
            tf.logical_or(was_done, tf.equal(ids, self._end_token)),
            tf.gather(state.lengths, parents, batch_dims=1)
            + tf.cast(tf.logical_not(was_done), tf.int64),
            (),
        )
        for before, after in zip(state[1:4], later[1:4], strict=True):
            after.set_shape(before.shape)
        return BeamSearchDecoderOutput(scores, ids, parents), later

    def _length_penalty(self, lengths: Any) -> Any:
        weight = tf.convert_to_tensor(self._penalty, self.output_dtype.scores)
        return ((5.0 + tf.cast(lengths, weight.dtype)) / 6.0) ** weight

    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> Any:
        longest = tf.cast(tf.reduce_max(final_state.lengths, 1), tf.int32)
        ids, beams = _followed(outputs.predicted_ids, outputs.parent_ids, longest, self._end_token)
        if self._reorders:
            ordered = nest.map_structure(
                lambda value: (
                    self._ordered(value, beams) if isinstance(value, tf.TensorArray) else value
                ),
                final_state.cell_state,
            )
            final_state = final_state._replace(cell_state=ordered)
        return FinalBeamSearchDecoderOutput(ids, outputs), final_state

    def _ordered(self, array: Any, beams: Any) -> Any:
        """Reorder what a cell wrote at each step to match the final order of the beams."""
        steps = array.stack()
        shape = tf.concat([tf.shape(beams), tf.shape(steps)[2:]], 0)
        chosen = tf.gather(tf.reshape(steps, shape), beams, batch_dims=2)
        return tf.reshape(chosen, tf.shape(steps))

    def _each(self, change: Any, state: Any) -> Any:
        """Apply `change` to values with one row per example, not to TensorArrays and scalars."""
        return nest.map_structure(
            lambda value: (
                value
                if isinstance(value, tf.TensorArray) or value.shape.ndims == 0
                else change(value)
            ),
            state,
        )

    def _split(self, value: Any) -> Any:
        shape = tf.concat([[self.batch_size, self._width], tf.shape(value)[1:]], 0)
        split = tf.reshape(value, shape)
        split.set_shape(tf.TensorShape([self._batch, self._width]).concatenate(value.shape[1:]))
        return split

    def _merge(self, value: Any) -> Any:
        merged = tf.reshape(value, tf.concat([[-1], tf.shape(value)[2:]], 0))
        rows = None if self._batch is None else self._batch * self._width
        merged.set_shape(tf.TensorShape([rows]).concatenate(value.shape[2:]))
        return merged


def gather_tree(step_ids: Any, parent_ids: Any, max_sequence_lengths: Any, end_token: Any) -> Any:
    """Return the sequences, ``[time, batch, beam]``, that end in each beam."""
    return _followed(step_ids, parent_ids, max_sequence_lengths, end_token)[0]


def _followed(ids: Any, parents: Any, lengths: Any, end_token: Any) -> tuple[Any, Any]:
    """Follow the parents back from the last step; return the ids on each path and their beams."""
    beams = tf.zeros_like(ids[0]) + tf.range(tf.shape(ids)[2])
    is_within = tf.range(tf.shape(ids)[0])[:, None] < lengths[None, :]

    def back(after: Any, now: Any) -> Any:
        at, (ids, parents, within) = after[0], now
        within = tf.broadcast_to(within[:, None], tf.shape(at))
        found = tf.where(within, tf.gather(ids, at, batch_dims=1), tf.zeros_like(at) + end_token)
        return tf.where(within, tf.gather(parents, at, batch_dims=1), at), found, at

    _, found, places = tf.scan(
        back, (ids, parents, is_within), (beams, beams, beams), reverse=True, back_prop=False
    )
    is_end = tf.cast(tf.equal(found, end_token), tf.int32)
    is_over = tf.cumsum(is_end, axis=0, exclusive=True) > 0
    found = tf.where(is_over, tf.zeros_like(found) + end_token, found)
    found.set_shape(ids.shape)
    return found, places


def _chosen(value: Any, parents: Any) -> Any:
    chosen = tf.gather(value, parents, batch_dims=1)
    chosen.set_shape(value.shape)
    return chosen


def _never(like: Any, dtype: Any) -> Any:
    """Return the lowest finite value of the dtype, used as the log of probability zero."""
    dtype = tf.as_dtype(getattr(dtype, "dtype", dtype))
    return tf.zeros_like(like, dtype) + dtype.min
