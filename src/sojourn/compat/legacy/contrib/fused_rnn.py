"""The fused recurrent layers of `tf.contrib.rnn`: each processes a whole sequence, time-major."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf


class FusedRNNCellAdaptor:
    """Runs an ordinary cell over a whole sequence."""

    _name = "rnn"

    def __init__(self, cell: Any, use_dynamic_rnn: bool = False) -> None:
        self._cell = cell
        self._scope: Any = None

    def __call__(
        self,
        inputs: Any,
        initial_state: Any = None,
        dtype: Any = None,
        sequence_length: Any = None,
        scope: Any = None,
    ) -> Any:
        again = self._scope is not None
        with tf.variable_scope(
            self._scope or scope, default_name=self._name, reuse=True if again else None
        ) as here:
            self._scope = here
            return tf.nn.dynamic_rnn(
                self._cell,
                inputs,
                sequence_length,
                initial_state,
                dtype if initial_state is None else None,
                time_major=True,
                scope=here,
            )


class LSTMBlockFusedCell(FusedRNNCellAdaptor):
    """An LSTM over a whole sequence; contrib's fused kernel computed the same result."""

    _name = "lstm_fused_cell"

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: float | None = None,
        use_peephole: bool = False,
        reuse: Any = None,
        dtype: Any = None,
        name: str = "lstm_fused_cell",
    ) -> None:
        from sojourn.compat.legacy.contrib.rnn import LSTMBlockCell

        super().__init__(LSTMBlockCell(num_units, forget_bias, cell_clip, use_peephole, dtype))
        self._name = name
        self.num_units = num_units


class TimeReversedFusedRNN:
    """Runs a fused layer over its sequences in reverse."""

    def __init__(self, cell: Any) -> None:
        self._cell = cell

    def __call__(
        self,
        inputs: Any,
        initial_state: Any = None,
        dtype: Any = None,
        sequence_length: Any = None,
        scope: Any = None,
    ) -> Any:
        outputs, state = self._cell(
            _reversed(inputs, sequence_length), initial_state, dtype, sequence_length, scope
        )
        return _reversed(outputs, sequence_length), state


def _reversed(values: Any, lengths: Any) -> Any:
    if lengths is None:
        return tf.reverse(values, [0])
    return tf.reverse_sequence(values, lengths, seq_axis=0, batch_axis=1)
