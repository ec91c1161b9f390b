"""Helpers of `tf.contrib.seq2seq` that mix given inputs with the decoder's own outputs."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy.contrib.decoding import Helper, TrainingHelper, embedder


class ScheduledEmbeddingTrainingHelper(TrainingHelper):
    """With `sampling_probability`, feeds the embedding of a word sampled from the output."""

    def __init__(
        self,
        inputs: Any,
        sequence_length: Any,
        embedding: Any,
        sampling_probability: Any,
        time_major: bool = False,
        seed: Any = None,
        scheduling_seed: Any = None,
        name: Any = None,
    ) -> None:
        super().__init__(inputs, sequence_length, time_major, name)
        self._embed = embedder(embedding)
        self._chance, self._seeds = sampling_probability, (seed, scheduling_seed)

    def sample(self, time: Any, outputs: Any, state: Any = None, name: Any = None) -> Any:
        """Return the sampled words; -1 where the given input is fed."""
        seed, scheduling_seed = self._seeds
        is_drawn = tf.random_uniform([self.batch_size], seed=scheduling_seed) < self._chance
        drawn = tf.multinomial(outputs, 1, seed=seed, output_dtype=tf.int32)[:, 0]
        return tf.where(is_drawn, drawn, tf.fill([self.batch_size], -1))

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any = None, name: Any = None
    ) -> Any:
        finished, right, state = super().next_inputs(time, outputs, state)
        said = self._embed(tf.maximum(sample_ids, 0))
        return finished, tf.where(sample_ids >= 0, said, right), state


class ScheduledOutputTrainingHelper(TrainingHelper):
    """With `sampling_probability`, feeds the output itself as the next input."""

    def __init__(
        self,
        inputs: Any,
        sequence_length: Any,
        sampling_probability: Any,
        time_major: bool = False,
        seed: Any = None,
        next_inputs_fn: Any = None,
        auxiliary_inputs: Any = None,
        name: Any = None,
    ) -> None:
        super().__init__(inputs, sequence_length, time_major, name)
        self._beside = None
        if auxiliary_inputs is not None:
            self._beside = TrainingHelper(auxiliary_inputs, sequence_length, time_major)
        self._chance, self._seed = sampling_probability, seed
        self._of_output = next_inputs_fn or (lambda outputs: outputs)

    def initialize(self, name: Any = None) -> Any:
        finished, inputs = super().initialize()
        return finished, self._with_beside(inputs, -1, finished)

    def sample(self, time: Any, outputs: Any, state: Any = None, name: Any = None) -> Any:
        """Return 1 where the output is fed, 0 where the given input is fed."""
        drawn = tf.random_uniform([self.batch_size], seed=self._seed) < self._chance
        return tf.cast(drawn, tf.int32)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any = None, name: Any = None
    ) -> Any:
        finished, right, state = super().next_inputs(time, outputs, state)
        inputs = tf.where(sample_ids > 0, self._of_output(outputs), right)
        return finished, self._with_beside(inputs, time, finished), state

    def _with_beside(self, inputs: Any, time: Any, finished: Any) -> Any:
        if self._beside is None:
            return inputs
        return tf.concat([inputs, self._beside._read(time + 1, finished)], -1)


class InferenceHelper(Helper):
    """Feeds the samples that `sample_fn` takes from the outputs, until `end_fn` reports the end."""

    def __init__(
        self,
        sample_fn: Any,
        sample_shape: Any,
        sample_dtype: Any,
        start_inputs: Any,
        end_fn: Any,
        next_inputs_fn: Any = None,
    ) -> None:
        self._sample, self._end = sample_fn, end_fn
        self._next = next_inputs_fn or (lambda samples: samples)
        self._start_inputs = tf.convert_to_tensor(start_inputs)
        self.sample_ids_shape, self.sample_ids_dtype = tf.TensorShape(sample_shape), sample_dtype
        self.batch_size = tf.shape(self._start_inputs)[0]

    def initialize(self, name: Any = None) -> Any:
        return tf.fill([self.batch_size], False), self._start_inputs

    def sample(self, time: Any, outputs: Any, state: Any, name: Any = None) -> Any:
        return self._sample(outputs)

    def next_inputs(
        self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: Any = None
    ) -> Any:
        return self._end(sample_ids), self._next(sample_ids), state
