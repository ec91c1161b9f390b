"""`tf.nn.rnn_cell` and the functions that unroll cells, under all their old names.

The cells are those that TensorFlow still contains. Added here: arguments that were removed,
several layers from one cell object, and the projection wrappers of tf.contrib.rnn.
"""

from __future__ import annotations

import contextlib
import copy
import weakref
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import rnn_cell as kept

from sojourn.compat.legacy.namespaces import Namespace

RNNCell = kept.RNNCell
LSTMStateTuple = kept.LSTMStateTuple


class _Forgiving:
    """Drops `input_size`, an argument that cells used before 1.0 and ignored later."""

    def __init__(self, num_units: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("input_size", None)
        super().__init__(num_units, *args, **kwargs)  # type: ignore[call-arg]


def _forgiving(cell: Any) -> Any:
    return type(cell.__name__, (_Forgiving, cell), {"__doc__": cell.__doc__})


BasicRNNCell = _forgiving(kept.BasicRNNCell)
BasicLSTMCell = _forgiving(kept.BasicLSTMCell)
GRUCell = _forgiving(kept.GRUCell)
LSTMCell = _forgiving(kept.LSTMCell)


class MultiRNNCell(kept.MultiRNNCell):  # type: ignore[misc]
    """A stack of cells. ``[cell] * 3`` means three layers, as it did before 1.1.

    Later versions of TensorFlow 1 shared the weights between such cells, or failed if the input
    was not as wide as the cell. The authors of the programs meant neither.
    """

    def __init__(self, cells: Any, state_is_tuple: bool = True, **kwargs: Any) -> None:
        seen: set[int] = set()
        layers = []
        for cell in cells:
            if id(cell) in seen and not getattr(cell, "built", False):
                cell = twin(cell)
            seen.add(id(cell))
            layers.append(cell)
        super().__init__(layers, state_is_tuple=state_is_tuple, **kwargs)


_unused: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def twin(cell: Any) -> Any:
    """Return a cell like `cell` with its own weights, even if `cell` has been used meanwhile.

    A used cell holds variables and cannot be copied, so a copy from before its use is kept.
    """
    if cell not in _unused:
        _unused[cell] = copy.deepcopy(cell)
    return copy.deepcopy(_unused[cell])


class Wrapper(kept.RNNCell):  # type: ignore[misc]
    """A cell around another cell, with the same sizes and states."""

    def __init__(self, cell: Any, reuse: Any = None) -> None:
        super().__init__(_reuse=reuse)
        self._cell = cell

    @property
    def state_size(self) -> Any:
        return self._cell.state_size

    @property
    def output_size(self) -> Any:
        return self._cell.output_size

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        return self._cell.zero_state(batch_size, dtype)


class OutputProjectionWrapper(Wrapper):
    """A cell whose output goes through one dense layer."""

    def __init__(
        self, cell: Any, output_size: int, activation: Any = None, reuse: Any = None
    ) -> None:
        super().__init__(cell, reuse)
        self._output_size, self._activation = output_size, activation

    @property
    def output_size(self) -> Any:
        return self._output_size

    def call(self, inputs: Any, state: Any) -> Any:
        output, state = self._cell(inputs, state)
        projected = linear([output], self._output_size, True)
        return (self._activation(projected) if self._activation else projected), state


class InputProjectionWrapper(Wrapper):
    """A cell whose input goes through one dense layer first."""

    def __init__(
        self,
        cell: Any,
        num_proj: int,
        activation: Any = None,
        input_size: Any = None,
        reuse: Any = None,
    ) -> None:
        super().__init__(cell, reuse)
        self._num_proj, self._activation = num_proj, activation

    def call(self, inputs: Any, state: Any) -> Any:
        projected = linear([inputs], self._num_proj, True)
        return self._cell(self._activation(projected) if self._activation else projected, state)


class EmbeddingWrapper(Wrapper):
    """A cell that takes integers and looks up their embeddings."""

    def __init__(
        self,
        cell: Any,
        embedding_classes: int,
        embedding_size: int,
        initializer: Any = None,
        reuse: Any = None,
    ) -> None:
        super().__init__(cell, reuse)
        self._classes, self._size = embedding_classes, embedding_size
        self._initializer = initializer

    def call(self, inputs: Any, state: Any) -> Any:
        initializer = self._initializer or tf.random_uniform_initializer(-(3**0.5), 3**0.5)
        first = state
        while isinstance(first, (tuple, list)):
            first = first[0]
        table = tf.get_variable(
            "embedding", [self._classes, self._size], first.dtype, initializer=initializer
        )
        embedded = tf.nn.embedding_lookup(table, tf.reshape(inputs, [-1]))
        return self._cell(embedded, state)


class Linear:
    """``sum(arg @ W) + b``, with variables in the scope in which the object is made."""

    def __init__(
        self,
        args: Any,
        output_size: int,
        build_bias: bool,
        bias_initializer: Any = None,
        kernel_initializer: Any = None,
    ) -> None:
        args = _listed(args)
        shape = [sum(tf.dimension_value(arg.shape[-1]) for arg in args), output_size]
        kind = args[0].dtype
        self._kernel = tf.get_variable("kernel", shape, kind, initializer=kernel_initializer)
        start = bias_initializer or tf.zeros_initializer()
        self._bias = (
            tf.get_variable("bias", shape[1:], kind, initializer=start) if build_bias else None
        )

    def __call__(self, args: Any) -> Any:
        args = _listed(args)
        result = tf.matmul(args[0] if len(args) == 1 else tf.concat(args, 1), self._kernel)
        return result if self._bias is None else result + self._bias


def linear(
    args: Any,
    output_size: int,
    bias: bool,
    bias_initializer: Any = None,
    kernel_initializer: Any = None,
    scope: Any = None,
    bias_start: float = 0.0,
) -> Any:
    """Compute ``sum(arg @ W) + b`` with variables of the current scope; also named `_linear`."""
    # The fourth argument was `bias_start` before 1.0.
    if isinstance(bias_initializer, (int, float)):
        bias_initializer = tf.constant_initializer(bias_initializer)
    start = bias_initializer or tf.constant_initializer(bias_start)
    with tf.variable_scope(scope) if scope is not None else contextlib.nullcontext():
        return Linear(args, output_size, bias, start, kernel_initializer)(args)


def _listed(args: Any) -> Any:
    return args if isinstance(args, (list, tuple)) else [args]


# The names that these have in TensorFlow's own rnn_cell_impl.
_linear, _Linear, _LayerRNNCell = linear, Linear, kept.LayerRNNCell

CELLS: dict[str, Any] = {
    "RNNCell": RNNCell,
    "LayerRNNCell": kept.LayerRNNCell,
    "BasicRNNCell": BasicRNNCell,
    "BasicLSTMCell": BasicLSTMCell,
    "GRUCell": GRUCell,
    "LSTMCell": LSTMCell,
    "LSTMStateTuple": LSTMStateTuple,
    "MultiRNNCell": MultiRNNCell,
    "DropoutWrapper": kept.DropoutWrapper,
    "ResidualWrapper": kept.ResidualWrapper,
    "DeviceWrapper": kept.DeviceWrapper,
    "OutputProjectionWrapper": OutputProjectionWrapper,
    "InputProjectionWrapper": InputProjectionWrapper,
    "EmbeddingWrapper": EmbeddingWrapper,
    "_linear": linear,
    "linear": linear,
    "_Linear": Linear,
}


def namespace(name: str = "tensorflow.nn.rnn_cell") -> Namespace:
    """Return the module `tf.nn.rnn_cell`."""
    return Namespace(name, (kept,), CELLS, shown_as="tf.nn.rnn_cell")
