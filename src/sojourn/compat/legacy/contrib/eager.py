"""`tf.contrib.eager`: what programs of the time used beside `tf.enable_eager_execution`."""

from __future__ import annotations

import types
from collections.abc import Iterator as _Iterating
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import backprop
from tensorflow.python.keras import metrics as _metrics
from tensorflow.python.keras.engine import training as _training

Variable = tf.Variable
Checkpoint = tf.train.Checkpoint
defun = function = tf.function
py_func = tf.py_function
in_eager_mode = executing_eagerly = tf.executing_eagerly

implicit_gradients = backprop.implicit_grad
implicit_value_and_gradients = backprop.implicit_val_and_grad
gradients_function = backprop.gradients_function
value_and_gradients_function = backprop.val_and_grad_function


class Iterator:
    """The elements of a dataset, one after the other."""

    def __init__(self, dataset: Any) -> None:
        self._elements = iter(dataset)

    def __iter__(self) -> _Iterating[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._elements)

    next = __next__


class Network(_training.Model):  # type: ignore[misc]
    """A model made of layers that it was told of, before assigning one was enough."""

    def __init__(self, name: Any = None) -> None:
        super().__init__(name=name)
        self._told: list[Any] = []

    def track_layer(self, layer: Any) -> Any:
        """Make the layer's variables those of the network."""
        self._told.append(layer)
        return layer


class Mean(_metrics.Mean):  # type: ignore[misc]
    """The weighted mean of all that it was called with. The call gives its values back."""

    def __init__(self, name: Any = None, dtype: Any = tf.float64, **rest: Any) -> None:
        super().__init__(name=name, dtype=dtype)

    def __call__(self, values: Any, weights: Any = None) -> Any:
        self.update_state(values, weights)
        return values if weights is None else (values, weights)


class Accuracy(Mean):
    """How many predictions were their labels."""

    def __call__(  # type: ignore[override]
        self, labels: Any, predictions: Any, weights: Any = None
    ) -> Any:
        labels, predictions = tf.convert_to_tensor(labels), tf.convert_to_tensor(predictions)
        self.update_state(tf.equal(labels, tf.cast(predictions, labels.dtype)), weights)
        given = (labels, predictions)
        return given if weights is None else (*given, weights)


metrics = types.SimpleNamespace(Mean=Mean, Accuracy=Accuracy)


class Saver:
    """Variables by name, kept in checkpoints."""

    def __init__(self, var_list: Any) -> None:
        self._saver = tf.compat.v1.train.Saver(var_list)

    def save(self, file_prefix: str, global_step: Any = None) -> Any:
        """Write them; the path that was written."""
        return self._saver.save(None, file_prefix, global_step=global_step)

    def restore(self, file_prefix: str) -> None:
        """Read them."""
        self._saver.restore(None, file_prefix)


def list_devices() -> list[str]:
    """The names of the devices."""
    return [device.name for device in tf.config.list_logical_devices()]


def num_gpus() -> int:
    """How many GPUs there are."""
    return len(tf.config.list_logical_devices("GPU"))
