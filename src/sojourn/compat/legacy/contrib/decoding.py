"""Decoders of `tf.contrib.seq2seq`: a cell, a helper that selects its next input, and the loop."""

from __future__ import annotations

import abc
import collections
import dis
import sys
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.util import nest

BasicDecoderOutput = collections.namedtuple("BasicDecoderOutput", ("rnn_output", "sample_id"))


class Helper(abc.ABC):
    """Selects the next input of the cell, and reports which sequences have ended."""

    batch_size: Any
    sample_ids_shape: Any = tf.TensorShape([])
    sample_ids_dtype: Any = tf.int32

    @abc.abstractmethod
    def initialize(self, name: Any = None) -> Any:
        """Return ``(finished, first inputs)``."""

    @abc.abstractmethod
    def sample(self, time: Any, outputs: Any, state: Any, name: Any = None) -> Any:
        """Return the ids sampled from the outputs of a step."""

    @abc.abstractmethod
    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: Any = None
    ) -> Any:
        """Return ``(finished, next inputs, next state)``."""


class TrainingHelper(Helper):
    """Feeds the cell the given inputs, independent of its outputs (teacher forcing)."""

    def __init__(
        self, inputs: Any, sequence_length: Any, time_major: bool = False, name: Any = None
    ) -> None:
        with tf.name_scope(name or "TrainingHelper"):
            inputs = nest.map_structure(tf.convert_to_tensor, inputs)
            if not time_major:
                inputs = nest.map_structure(swap_batch_and_time, inputs)
            self.sequence_length = tf.convert_to_tensor(sequence_length)
            self._steps = nest.map_structure(_as_steps, inputs)
            self._zeros = nest.map_structure(lambda each: tf.zeros_like(each[0]), inputs)
            self.batch_size = tf.shape(self.sequence_length)[0]

    def _read(self, time: Any, finished: Any) -> Any:
        return tf.cond(
            tf.reduce_all(finished),
            lambda: self._zeros,
            lambda: nest.map_structure(lambda steps: steps.read(time), self._steps),
        )

    def initialize(self, name: Any = None) -> Any:
        finished = tf.equal(0, self.sequence_length)
        return finished, self._read(0, finished)

    def sample(self, time: Any, outputs: Any, state: Any = None, name: Any = None) -> Any:
        return tf.argmax(outputs, axis=-1, output_type=tf.int32)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any = None, name: Any = None
    ) -> Any:
        finished = time + 1 >= self.sequence_length
        return finished, self._read(time + 1, finished), state


class GreedyEmbeddingHelper(Helper):
    """Feeds the cell the embedding of the likeliest id, until it is `end_token`."""

    def __init__(self, embedding: Any, start_tokens: Any, end_token: Any) -> None:
        self._embed = embedder(embedding)
        self._start_tokens = tf.convert_to_tensor(start_tokens, tf.int32)
        self._end_token = tf.convert_to_tensor(end_token, tf.int32)
        self._start_inputs = self._embed(self._start_tokens)
        self.batch_size = tf.size(self._start_tokens)

    def initialize(self, name: Any = None) -> Any:
        return tf.tile([False], [self.batch_size]), self._start_inputs

    def sample(self, time: Any, outputs: Any, state: Any = None, name: Any = None) -> Any:
        return tf.argmax(outputs, axis=-1, output_type=tf.int32)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: Any = None
    ) -> Any:
        finished = tf.equal(sample_ids, self._end_token)
        inputs = tf.cond(
            tf.reduce_all(finished), lambda: self._start_inputs, lambda: self._embed(sample_ids)
        )
        return finished, inputs, state


class SampleEmbeddingHelper(GreedyEmbeddingHelper):
    """Feeds the cell the embedding of an id sampled from the output distribution."""

    def __init__(
        self,
        embedding: Any,
        start_tokens: Any,
        end_token: Any,
        softmax_temperature: Any = None,
        seed: Any = None,
    ) -> None:
        super().__init__(embedding, start_tokens, end_token)
        self._temperature, self._seed = softmax_temperature, seed

    def sample(self, time: Any, outputs: Any, state: Any = None, name: Any = None) -> Any:
        logits = outputs if self._temperature is None else outputs / self._temperature
        drawn = tf.multinomial(logits, 1, seed=self._seed, output_dtype=tf.int32)
        return tf.squeeze(drawn, [1])


class CustomHelper(Helper):
    """A helper made of three functions of the program."""

    def __init__(
        self,
        initialize_fn: Any,
        sample_fn: Any,
        next_inputs_fn: Any,
        sample_ids_shape: Any = None,
        sample_ids_dtype: Any = None,
    ) -> None:
        self._initialize, self._sample, self._next = initialize_fn, sample_fn, next_inputs_fn
        self.sample_ids_shape = tf.TensorShape(sample_ids_shape or [])
        self.sample_ids_dtype = sample_ids_dtype or tf.int32

    def initialize(self, name: Any = None) -> Any:
        finished, inputs = self._initialize()
        self.batch_size = tf.size(finished)
        return finished, inputs

    def sample(self, time: Any, outputs: Any, state: Any, name: Any = None) -> Any:
        return self._sample(time=time, outputs=outputs, state=state)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: Any = None
    ) -> Any:
        return self._next(time=time, outputs=outputs, state=state, sample_ids=sample_ids)


class Decoder:
    """Base class of the decoders that `dynamic_decode` runs. Programs subclass it too."""

    tracks_own_finished = False

    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> Any:
        return outputs, final_state


class BasicDecoder(Decoder):
    """A cell, a helper, and an optional output layer."""

    def __init__(self, cell: Any, helper: Any, initial_state: Any, output_layer: Any = None):
        self._cell, self._helper = cell, helper
        self._initial_state, self._output_layer = initial_state, output_layer

    @property
    def batch_size(self) -> Any:
        return self._helper.batch_size

    @property
    def output_size(self) -> Any:
        size = self._cell.output_size
        if self._output_layer is not None:
            shape = tf.TensorShape([None]).concatenate(size)
            size = self._output_layer.compute_output_shape(shape)[1:]
        return BasicDecoderOutput(tf.TensorShape(size), self._helper.sample_ids_shape)

    @property
    def output_dtype(self) -> Any:
        return BasicDecoderOutput(
            nest.flatten(self._initial_state)[0].dtype, self._helper.sample_ids_dtype
        )

    def initialize(self, name: Any = None) -> Any:
        return (*self._helper.initialize(), self._initial_state)

    def step(self, time: Any, inputs: Any, state: Any, name: Any = None) -> Any:
        with tf.name_scope(name or "BasicDecoderStep"):
            outputs, state = self._cell(inputs, state)
            if self._output_layer is not None:
                outputs = self._output_layer(outputs)
            ids = self._helper.sample(time=time, outputs=outputs, state=state)
            finished, inputs, state = self._helper.next_inputs(
                time=time, outputs=outputs, state=state, sample_ids=ids
            )
        return BasicDecoderOutput(outputs, ids), state, inputs, finished


def dynamic_decode(
    decoder: Any,
    output_time_major: bool = False,
    impute_finished: bool = False,
    maximum_iterations: Any = None,
    parallel_iterations: int = 32,
    swap_memory: bool = False,
    scope: Any = None,
) -> Any:
    """Step until every sequence has ended; return ``(outputs, final state, lengths)``, or only
    the first two if the caller unpacks two."""
    with tf.variable_scope(scope, "decoder"):
        limit = None if maximum_iterations is None else tf.cast(maximum_iterations, tf.int32)
        finished, inputs, state = decoder.initialize()
        if limit is not None:
            finished = tf.logical_or(finished, limit <= 0)
        sizes, dtypes = decoder.output_size, decoder.output_dtype
        zeros = nest.map_structure(
            lambda size, dtype: tf.zeros(
                tf.stack([decoder.batch_size, *tf.TensorShape(size).as_list()]), dtype
            ),
            sizes,
            dtypes,
        )
        written = nest.map_structure(
            lambda size, dtype: tf.TensorArray(
                dtype, 0, dynamic_size=True, element_shape=tf.TensorShape([None]).concatenate(size)
            ),
            sizes,
            dtypes,
        )

        def body(time: Any, written: Any, state: Any, inputs: Any, done: Any, lengths: Any) -> Any:
            outputs, new_state, inputs, now_done = decoder.step(time, inputs, state)
            if not decoder.tracks_own_finished:
                now_done = tf.logical_or(now_done, done)
            if limit is not None:
                now_done = tf.logical_or(now_done, time + 1 >= limit)
            lengths = tf.where(done, lengths, tf.fill(tf.shape(lengths), time + 1))
            if impute_finished:
                outputs = nest.map_structure(lambda new, z: tf.where(done, z, new), outputs, zeros)
                new_state = nest.map_structure(
                    lambda new, old: _kept(done, new, old), new_state, state
                )
            nest.assert_same_structure(state, new_state)
            written = nest.map_structure(lambda ta, out: ta.write(time, out), written, outputs)
            return time + 1, written, new_state, inputs, now_done, lengths

        _, written, state, _, _, lengths = tf.while_loop(
            lambda time, written, state, inputs, done, lengths: tf.logical_not(tf.reduce_all(done)),
            body,
            (tf.constant(0), written, state, inputs, finished, tf.zeros_like(finished, tf.int32)),
            parallel_iterations=parallel_iterations,
            swap_memory=swap_memory,
        )
        outputs = nest.map_structure(lambda ta: ta.stack(), written)
        if decoder.tracks_own_finished and hasattr(state, "lengths"):
            lengths = tf.cast(state.lengths, tf.int32)
        try:
            outputs, state = decoder.finalize(outputs, state, lengths)
        except NotImplementedError:
            pass  # a program's own decoder raises this if it has nothing to finalize
        if not output_time_major:
            outputs = nest.map_structure(swap_batch_and_time, outputs)
    return (outputs, state) if _takes_two(sys._getframe(1)) else (outputs, state, lengths)


def _takes_two(caller: Any) -> bool:
    """Whether the caller unpacks two results: before TensorFlow 1.2 no lengths were returned."""
    following = (i for i in dis.get_instructions(caller.f_code) if i.offset > caller.f_lasti)
    after = next(following, None)
    return after is not None and (after.opname, after.argval) == ("UNPACK_SEQUENCE", 2)


def _kept(done: Any, new: Any, old: Any) -> Any:
    # TensorArrays and scalars have no row per example that could be kept.
    if isinstance(new, tf.TensorArray) or new.shape.ndims == 0:
        return new
    new.set_shape(old.shape)
    return tf.where(done, old, new)


def _as_steps(value: Any) -> Any:
    return tf.TensorArray(value.dtype, tf.shape(value)[0], element_shape=value.shape[1:]).unstack(
        value
    )


def embedder(embedding: Any) -> Any:
    """Return `embedding` if it is callable, else a function that looks ids up in that table."""
    if callable(embedding):
        return embedding
    return lambda ids: tf.nn.embedding_lookup(embedding, ids)


def swap_batch_and_time(value: Any) -> Any:
    """Return `value` with its first two axes swapped."""
    if value.shape.ndims is None or value.shape.ndims < 2:
        return value
    swapped = tf.transpose(value, [1, 0, *range(2, value.shape.ndims)])
    swapped.set_shape(tf.TensorShape([value.shape[1], value.shape[0]]).concatenate(value.shape[2:]))
    return swapped


def tile_batch(t: Any, multiplier: int, name: Any = None) -> Any:
    """Repeat each example of every tensor in `t` `multiplier` times, copies side by side."""

    def tiled(value: Any) -> Any:
        value = tf.convert_to_tensor(value)
        copies = tf.tile(tf.expand_dims(value, 1), [1, multiplier] + [1] * (value.shape.ndims - 1))
        return tf.reshape(copies, tf.concat([[-1], tf.shape(value)[1:]], 0))

    return nest.map_structure(tiled, t)
