"""`tf.contrib.legacy_seq2seq`, or `tf.nn.seq2seq` before 1.0: decoders over lists of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy import removed
from sojourn.compat.legacy.cells import EmbeddingWrapper, OutputProjectionWrapper, linear, twin

Tensors = Sequence[Any]


def _argmax_of(
    embedding: Any,
    projection: Any = None,
    update_embedding: bool = True,
    feed_previous: bool = True,
) -> Callable[[Any, Any], Any] | None:
    """Return a loop function that embeds the likeliest symbol of the previous output, or None if
    `feed_previous` is false."""
    if not feed_previous:
        return None

    def loop(previous: Any, _: Any) -> Any:
        if projection is not None:
            previous = tf.nn.xw_plus_b(previous, projection[0], projection[1])
        embedded = tf.nn.embedding_lookup(embedding, tf.argmax(previous, 1))
        return embedded if update_embedding else tf.stop_gradient(embedded)

    return loop


_extract_argmax_and_embed = _argmax_of  # contrib's name, used by code that programs copied


def rnn_decoder(
    decoder_inputs: Tensors,
    initial_state: Any,
    cell: Any,
    loop_function: Any = None,
    scope: Any = None,
) -> Any:
    """Run `cell` over the inputs; `loop_function` computes each next input from the last output."""
    with tf.variable_scope(scope or "rnn_decoder"):
        state, outputs, previous = initial_state, [], None
        for index, step in enumerate(decoder_inputs):
            if loop_function is not None and previous is not None:
                with tf.variable_scope("loop_function", reuse=True):
                    step = loop_function(previous, index)
            if index > 0:
                tf.get_variable_scope().reuse_variables()
            output, state = cell(step, state)
            outputs.append(output)
            previous = output if loop_function is not None else None
    return outputs, state


def basic_rnn_seq2seq(
    encoder_inputs: Tensors,
    decoder_inputs: Tensors,
    cell: Any,
    dtype: Any = tf.float32,
    scope: Any = None,
) -> Any:
    """Encode with one cell, decode with a copy of it."""
    with tf.variable_scope(scope or "basic_rnn_seq2seq"):
        _, state = tf.nn.static_rnn(twin(cell), encoder_inputs, dtype=dtype)
        return rnn_decoder(decoder_inputs, state, cell)


def tied_rnn_seq2seq(
    encoder_inputs: Tensors,
    decoder_inputs: Tensors,
    cell: Any,
    loop_function: Any = None,
    dtype: Any = tf.float32,
    scope: Any = None,
) -> Any:
    """Encode and decode with the same weights."""
    with tf.variable_scope("combined_tied_rnn_seq2seq"):
        name = scope or "tied_rnn_seq2seq"
        _, state = tf.nn.static_rnn(cell, encoder_inputs, dtype=dtype, scope=name)
        tf.get_variable_scope().reuse_variables()
        return rnn_decoder(decoder_inputs, state, cell, loop_function, scope=name)


def embedding_rnn_decoder(
    decoder_inputs: Tensors,
    initial_state: Any,
    cell: Any,
    num_symbols: int,
    embedding_size: int,
    output_projection: Any = None,
    feed_previous: bool = False,
    update_embedding_for_previous: bool = True,
    scope: Any = None,
) -> Any:
    """Decode symbols, which are embedded before the cell."""
    with tf.variable_scope(scope or "embedding_rnn_decoder"):
        table = tf.get_variable("embedding", [num_symbols, embedding_size])
        loop = _argmax_of(table, output_projection, update_embedding_for_previous, feed_previous)
        embedded = [tf.nn.embedding_lookup(table, step) for step in decoder_inputs]
        return rnn_decoder(embedded, initial_state, cell, loop_function=loop)


def embedding_rnn_seq2seq(
    encoder_inputs: Tensors,
    decoder_inputs: Tensors,
    cell: Any,
    num_encoder_symbols: int,
    num_decoder_symbols: int,
    embedding_size: int,
    output_projection: Any = None,
    feed_previous: Any = False,
    dtype: Any = tf.float32,
    scope: Any = None,
) -> Any:
    """Encode and decode symbols."""
    with tf.variable_scope(scope or "embedding_rnn_seq2seq", dtype=dtype):
        encoder = EmbeddingWrapper(twin(cell), num_encoder_symbols, embedding_size)
        _, state = tf.nn.static_rnn(encoder, encoder_inputs, dtype=dtype)
        if output_projection is None:
            cell = OutputProjectionWrapper(cell, num_decoder_symbols)

        def decode(feed: bool) -> Any:
            return embedding_rnn_decoder(
                decoder_inputs,
                state,
                cell,
                num_decoder_symbols,
                embedding_size,
                output_projection=output_projection,
                feed_previous=feed,
            )

        return _either(feed_previous, decode)


def _either(feed_previous: Any, decode: Callable[[bool], Any]) -> Any:
    """Decode once if `feed_previous` is a bool; if it is a tensor, build both ways in a cond."""
    if isinstance(feed_previous, bool):
        return decode(feed_previous)
    structure: list[Any] = []

    def branch(feed: bool) -> Callable[[], list[Any]]:
        def build() -> list[Any]:
            with tf.variable_scope(tf.get_variable_scope(), reuse=None if feed else True):
                outputs, state = decode(feed)
            structure[:] = [len(outputs), state]
            return [*outputs, *tf.nest.flatten(state)]

        return build

    flat = tf.cond(feed_previous, branch(True), branch(False))
    count, state = structure
    return flat[:count], tf.nest.pack_sequence_as(state, flat[count:])


def attention_decoder(
    decoder_inputs: Tensors,
    initial_state: Any,
    attention_states: Any,
    cell: Any,
    output_size: int | None = None,
    num_heads: int = 1,
    loop_function: Any = None,
    dtype: Any = None,
    scope: Any = None,
    initial_state_attention: bool = False,
) -> Any:
    """Decode with attention over `attention_states`, weighted by the cell state at each step."""
    if not decoder_inputs:
        raise ValueError("attention_decoder needs at least one input")
    output_size = cell.output_size if output_size is None else output_size
    with tf.variable_scope(scope or "attention_decoder", dtype=dtype) as here:
        kind = here.dtype
        length, width = (tf.dimension_value(d) for d in attention_states.shape[1:3])
        if length is None:
            length = tf.shape(attention_states)[1]
        hidden = tf.reshape(attention_states, [-1, length, 1, width])
        keys, scales = [], []
        for head in range(num_heads):
            kernel = tf.get_variable(f"AttnW_{head}", [1, 1, width, width], kind)
            keys.append(tf.nn.conv2d(hidden, kernel, [1, 1, 1, 1], "SAME"))
            scales.append(tf.get_variable(f"AttnV_{head}", [width], kind))
        state = initial_state

        def attend(query: Any) -> list[Any]:
            flat = tf.nest.flatten(query)
            joined = flat[0] if len(flat) == 1 else tf.concat(flat, 1)
            read = []
            for head in range(num_heads):
                with tf.variable_scope(f"Attention_{head}"):
                    y = tf.reshape(linear([joined], width, True), [-1, 1, 1, width])
                    score = tf.reduce_sum(scales[head] * tf.tanh(keys[head] + y), [2, 3])
                    weight = tf.reshape(tf.nn.softmax(score), [-1, length, 1, 1])
                    read.append(tf.reshape(tf.reduce_sum(weight * hidden, [1, 2]), [-1, width]))
            return read

        batch = tf.shape(decoder_inputs[0])[0]
        attentions = [tf.zeros(tf.stack([batch, width]), kind) for _ in range(num_heads)]
        for attention in attentions:
            attention.set_shape([None, width])
        if initial_state_attention:
            attentions = attend(initial_state)
        outputs, previous = [], None
        for index, step in enumerate(decoder_inputs):
            if index > 0:
                tf.get_variable_scope().reuse_variables()
            if loop_function is not None and previous is not None:
                with tf.variable_scope("loop_function", reuse=True):
                    step = loop_function(previous, index)
            input_size = tf.dimension_value(step.shape[-1])
            x = linear([step, *attentions], input_size, True)
            cell_output, state = cell(x, state)
            if index == 0 and initial_state_attention:
                with tf.variable_scope(tf.get_variable_scope(), reuse=True):
                    attentions = attend(state)
            else:
                attentions = attend(state)
            with tf.variable_scope("AttnOutputProjection"):
                output = linear([cell_output, *attentions], output_size, True)
            previous = output if loop_function is not None else None
            outputs.append(output)
    return outputs, state


def embedding_attention_decoder(
    decoder_inputs: Tensors,
    initial_state: Any,
    attention_states: Any,
    cell: Any,
    num_symbols: int,
    embedding_size: int,
    num_heads: int = 1,
    output_size: int | None = None,
    output_projection: Any = None,
    feed_previous: bool = False,
    update_embedding_for_previous: bool = True,
    dtype: Any = None,
    scope: Any = None,
    initial_state_attention: bool = False,
) -> Any:
    """Decode symbols with attention."""
    with tf.variable_scope(scope or "embedding_attention_decoder", dtype=dtype):
        table = tf.get_variable("embedding", [num_symbols, embedding_size])
        loop = _argmax_of(table, output_projection, update_embedding_for_previous, feed_previous)
        return attention_decoder(
            [tf.nn.embedding_lookup(table, step) for step in decoder_inputs],
            initial_state,
            attention_states,
            cell,
            output_size=cell.output_size if output_size is None else output_size,
            num_heads=num_heads,
            loop_function=loop,
            initial_state_attention=initial_state_attention,
        )


def embedding_attention_seq2seq(
    encoder_inputs: Tensors,
    decoder_inputs: Tensors,
    cell: Any,
    num_encoder_symbols: int,
    num_decoder_symbols: int,
    embedding_size: int,
    num_heads: int = 1,
    output_projection: Any = None,
    feed_previous: Any = False,
    dtype: Any = None,
    scope: Any = None,
    initial_state_attention: bool = False,
) -> Any:
    """Encode and decode symbols, with attention over the encoder's outputs."""
    with tf.variable_scope(scope or "embedding_attention_seq2seq", dtype=dtype) as here:
        kind = here.dtype
        encoder = EmbeddingWrapper(twin(cell), num_encoder_symbols, embedding_size)
        outputs, state = tf.nn.static_rnn(encoder, encoder_inputs, dtype=kind)
        states = tf.stack(outputs, axis=1)
        if output_projection is None:
            cell = OutputProjectionWrapper(cell, num_decoder_symbols)
        size = num_decoder_symbols if output_projection is None else None

        def decode(feed: bool) -> Any:
            return embedding_attention_decoder(
                decoder_inputs,
                state,
                states,
                cell,
                num_decoder_symbols,
                embedding_size,
                num_heads=num_heads,
                output_size=size,
                output_projection=output_projection,
                feed_previous=feed,
                initial_state_attention=initial_state_attention,
            )

        return _either(feed_previous, decode)


def sequence_loss_by_example(
    logits: Tensors,
    targets: Tensors,
    weights: Tensors,
    average_across_timesteps: bool = True,
    softmax_loss_function: Any = None,
    name: Any = None,
) -> Any:
    """Return the weighted cross entropy of each example."""
    if not len(logits) == len(targets) == len(weights):
        raise ValueError(
            f"logits, targets and weights differ in length: "
            f"{len(logits)}, {len(targets)}, {len(weights)}"
        )
    with tf.name_scope(name or "sequence_loss_by_example"):
        losses = []
        for logit, target, weight in zip(logits, targets, weights, strict=True):
            if softmax_loss_function is None:
                loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
                    labels=tf.reshape(target, [-1]), logits=logit
                )
            else:
                loss = _call_loss(softmax_loss_function, target, logit)
            losses.append(loss * weight)
        total = tf.add_n(losses)
        if average_across_timesteps:
            total /= tf.add_n(list(weights)) + 1e-12  # all weights of a sequence may be 0
        return total


def _call_loss(function: Any, target: Any, logit: Any) -> Any:
    try:
        return function(labels=target, logits=logit)
    except TypeError:
        # Loss functions from before 1.0 take the logits first, by position.
        return function(logit, target)


def sequence_loss(
    logits: Tensors,
    targets: Tensors,
    weights: Tensors,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    softmax_loss_function: Any = None,
    name: Any = None,
) -> Any:
    """Return the weighted cross entropy of the whole batch."""
    with tf.name_scope(name or "sequence_loss"):
        cost = tf.reduce_sum(
            sequence_loss_by_example(
                logits, targets, weights, average_across_timesteps, softmax_loss_function
            )
        )
        if not average_across_batch:
            return cost
        return cost / tf.cast(tf.shape(targets[0])[0], cost.dtype)


def model_with_buckets(
    encoder_inputs: Tensors,
    decoder_inputs: Tensors,
    targets: Tensors,
    weights: Tensors,
    buckets: Sequence[tuple[int, int]],
    seq2seq: Any,
    softmax_loss_function: Any = None,
    per_example_loss: bool = False,
    name: Any = None,
) -> Any:
    """Build the same model for each bucket of lengths, with shared weights."""
    measure = sequence_loss_by_example if per_example_loss else sequence_loss
    outputs, losses = [], []
    with tf.name_scope(name or "model_with_buckets"):
        for index, (longest_in, longest_out) in enumerate(buckets):
            with tf.variable_scope(tf.get_variable_scope(), reuse=True if index else None):
                out, _ = seq2seq(encoder_inputs[:longest_in], decoder_inputs[:longest_out])
            outputs.append(out)
            losses.append(
                measure(
                    out,
                    targets[:longest_out],
                    weights[:longest_out],
                    softmax_loss_function=softmax_loss_function,
                )
            )
    return outputs, losses


__getattr__ = removed.missing_name("tf.contrib.legacy_seq2seq")
