"""`tf.contrib.seq2seq` as in TensorFlow 1.0: a decoder is a function called at each step.

`decoder_fn(time, cell_state, cell_input, cell_output, context_state)` returns the finished flags,
the next state, the next input, the output to emit, and its own context.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy.contrib import layers


def simple_decoder_fn_train(encoder_state: Any, name: Any = None) -> Any:
    """Return a decoder function for training: the cell receives the given inputs."""

    def decoder_fn(time: Any, state: Any, inputs: Any, output: Any, context: Any) -> Any:
        return None, encoder_state if state is None else state, inputs, output, context

    return decoder_fn


def simple_decoder_fn_inference(
    output_fn: Any,
    encoder_state: Any,
    embeddings: Any,
    start_of_sequence_id: int,
    end_of_sequence_id: int,
    maximum_length: Any,
    num_decoder_symbols: int,
    dtype: Any = tf.int32,
    name: Any = None,
) -> Any:
    """Return a decoder function that feeds back the likeliest last word and emits the logits."""
    ends = (start_of_sequence_id, end_of_sequence_id)
    return _saying(
        output_fn, encoder_state, embeddings, ends, maximum_length, num_decoder_symbols, dtype
    )


def attention_decoder_fn_train(
    encoder_state: Any,
    attention_keys: Any,
    attention_values: Any,
    attention_score_fn: Any,
    attention_construct_fn: Any,
    name: Any = None,
) -> Any:
    """Return a decoder function for training: the cell receives given inputs and attention."""

    def decoder_fn(time: Any, state: Any, inputs: Any, output: Any, context: Any) -> Any:
        if state is None:
            state, attention = encoder_state, _no_attention(encoder_state)
        else:
            attention = attention_construct_fn(output, attention_keys, attention_values)
            output = attention
        return None, state, tf.concat([inputs, attention], 1), output, context

    return decoder_fn


def attention_decoder_fn_inference(
    output_fn: Any,
    encoder_state: Any,
    attention_keys: Any,
    attention_values: Any,
    attention_score_fn: Any,
    attention_construct_fn: Any,
    embeddings: Any,
    start_of_sequence_id: int,
    end_of_sequence_id: int,
    maximum_length: Any,
    num_decoder_symbols: int,
    dtype: Any = tf.int32,
    name: Any = None,
) -> Any:
    """Return a decoder function that feeds back the likeliest last word and the attention."""

    def look(output: Any) -> Any:
        return attention_construct_fn(output, attention_keys, attention_values)

    ends = (start_of_sequence_id, end_of_sequence_id)
    return _saying(
        output_fn, encoder_state, embeddings, ends, maximum_length, num_decoder_symbols, dtype, look
    )


def _saying(
    output_fn: Any,
    encoder_state: Any,
    embeddings: Any,
    ends: tuple[Any, Any],
    maximum_length: Any,
    num_symbols: int,
    dtype: Any,
    look: Any = None,
) -> Any:
    """Emit the likeliest word of each step until the end word; `look` computes the attention."""
    first, last = (tf.cast(each, dtype) for each in ends)

    def decoder_fn(time: Any, state: Any, inputs: Any, output: Any, context: Any) -> Any:
        if inputs is not None:
            raise ValueError(f"expected inputs to be None, as they are said here: {inputs!r}")
        if state is None:
            state, attention = encoder_state, look and _no_attention(encoder_state)
        elif look is not None:
            output = attention = look(output)
        if output is None:
            size = tf.shape(tf.nest.flatten(encoder_state)[0])[0]
            # Output of a single example, from which the loop learns the output shape.
            logits = tf.zeros([num_symbols], embeddings.dtype)
            ids, done = tf.fill([size], first), tf.zeros([size], tf.bool)
        else:
            logits = output_fn(output) if output_fn else output
            ids = tf.cast(tf.argmax(logits, 1), dtype)
            done = tf.equal(ids, last)
        following = tf.gather(embeddings, ids)
        if look is not None:
            following = tf.concat([following, attention], 1)
        done = tf.cond(time > maximum_length, lambda: tf.ones_like(done), lambda: done)
        return done, state, following, logits, context

    return decoder_fn


def _no_attention(encoder_state: Any) -> Any:
    """Return zeros shaped like the output of the top layer, which is the last `h`."""
    return tf.zeros_like(tf.nest.flatten(encoder_state)[-1])


def prepare_attention(
    attention_states: Any, attention_option: str, num_units: int, reuse: Any = None
) -> tuple[Any, Any, Any, Any]:
    """Return the attention keys and values, the score function and the construct function."""
    if attention_option not in ("bahdanau", "luong"):
        raise ValueError(f"Unknown attention option {attention_option}!")
    with tf.variable_scope("attention_keys", reuse=reuse) as scope:
        keys = layers.linear(attention_states, num_units, biases_initializer=None, scope=scope)
    if attention_option == "bahdanau":
        with tf.variable_scope("attention_score", reuse=reuse):
            kind = attention_states.dtype
            asked = tf.get_variable("attnW", [num_units, num_units], kind)
            weights = tf.get_variable("attnV", [num_units], kind)
    with tf.variable_scope("attention_construct", reuse=reuse) as construct_scope:
        pass

    def score_fn(query: Any, keys: Any, values: Any) -> Any:
        if attention_option == "luong":
            scores = tf.squeeze(tf.matmul(keys, tf.expand_dims(query, 2)), [2])
        else:
            wanted = tf.expand_dims(tf.matmul(query, asked), 1)
            scores = tf.reduce_sum(weights * tf.tanh(keys + wanted), [2])
        return tf.reduce_sum(tf.expand_dims(tf.nn.softmax(scores), 2) * values, [1])

    def construct_fn(query: Any, keys: Any, values: Any) -> Any:
        joined = tf.concat([query, score_fn(query, keys, values)], 1)
        # If the calling loop reuses variables, reuse these too.
        shared = tf.get_variable_scope().reuse or reuse
        return layers.linear(
            joined, num_units, biases_initializer=None, scope=construct_scope, reuse=shared
        )

    return keys, attention_states, score_fn, construct_fn


def dynamic_rnn_decoder(
    cell: Any,
    decoder_fn: Any,
    inputs: Any = None,
    sequence_length: Any = None,
    parallel_iterations: Any = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: Any = None,
    name: Any = None,
) -> tuple[Any, Any, Any]:
    """Return the outputs of all steps, the last state, and the context of `decoder_fn`."""
    read: Any = lambda time: None  # noqa: E731
    if inputs is not None:
        inputs = tf.convert_to_tensor(inputs)
        if not time_major:
            inputs = tf.transpose(inputs, [1, 0, 2])
        count, size = tf.unstack(tf.shape(inputs)[:2])
        if sequence_length is None:
            sequence_length = tf.fill([size], count)
        steps = tf.TensorArray(inputs.dtype, count).unstack(inputs)

        def read(time: Any) -> Any:
            step = tf.cond(time < count, lambda: steps.read(time), lambda: tf.zeros_like(inputs[0]))
            step.set_shape(inputs.shape[1:])
            return step

    def loop_fn(time: Any, output: Any, state: Any, memory: Any) -> Any:
        given = decoder_fn(time, state, read(time), output, memory)
        done, state, following, output, memory = given
        return time >= sequence_length if done is None else done, following, state, output, memory

    with tf.variable_scope(scope or name or "dynamic_rnn_decoder") as here:
        arrays, state, memory = tf.nn.raw_rnn(cell, loop_fn, parallel_iterations, swap_memory, here)
        outputs = arrays.stack()
        return (outputs if time_major else tf.transpose(outputs, [1, 0, 2])), state, memory
