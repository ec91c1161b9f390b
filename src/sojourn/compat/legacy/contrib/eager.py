"""`tf.contrib.eager`: what TensorFlow 1 programs used beside `tf.enable_eager_execution`."""

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
    """An iterator over the elements of a dataset."""

    def __init__(self, dataset: Any) -> None:
        self._elements = iter(dataset)

    def __iter__(self) -> _Iterating[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._elements)

    next = __next__


class Network(_training.Model):  # type: ignore[misc]
    """A model whose layers are registered explicitly; Keras later did this on assignment."""

    def __init__(self, name: Any = None) -> None:
        super().__init__(name=name)
        self._told: list[Any] = []

    def track_layer(self, layer: Any) -> Any:
        """Add the layer's variables to the network."""
        self._told.append(layer)
        return layer


class Mean(_metrics.Mean):  # type: ignore[misc]
    """The weighted mean of all values passed to its calls. Each call returns its arguments."""

    def __init__(self, name: Any = None, dtype: Any = tf.float64, **rest: Any) -> None:
        super().__init__(name=name, dtype=dtype)

    def __call__(self, values: Any, weights: Any = None) -> Any:
        self.update_state(values, weights)
        return values if weights is None else (values, weights)


class Accuracy(Mean):
    """The fraction of predictions that equal their labels."""

    def __call__(  # type: ignore[override]
        self, labels: Any, predictions: Any, weights: Any = None
    ) -> Any:
        labels, predictions = tf.convert_to_tensor(labels), tf.convert_to_tensor(predictions)
        self.update_state(tf.equal(labels, tf.cast(predictions, labels.dtype)), weights)
        given = (labels, predictions)
        return given if weights is None else (*given, weights)


metrics = types.SimpleNamespace(Mean=Mean, Accuracy=Accuracy)


class Saver:
    """Saves variables by name in checkpoints and restores them."""

    def __init__(self, var_list: Any) -> None:
        self._saver = tf.compat.v1.train.Saver(var_list)

    def save(self, file_prefix: str, global_step: Any = None) -> Any:
        """Write the variables; return the path that was written."""
        return self._saver.save(None, file_prefix, global_step=global_step)

    def restore(self, file_prefix: str) -> None:
        """Read the variables from a checkpoint."""
        self._saver.restore(None, file_prefix)


def list_devices() -> list[str]:
    """Return the names of the devices."""
    return [device.name for device in tf.config.list_logical_devices()]


def num_gpus() -> int:
    """Return the number of GPUs."""
    return len(tf.config.list_logical_devices("GPU"))
