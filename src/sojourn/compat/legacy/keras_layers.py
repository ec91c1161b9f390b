"""Layers of `tf.keras` that the Keras inside TensorFlow no longer has."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.keras import backend, initializers, layers
from tensorflow.python.keras.engine import base_layer

_MERGED: dict[str | None, Callable[[list[Any]], Any]] = {
    "concat": lambda ways: tf.concat(ways, -1),
    "sum": tf.add_n,
    "ave": lambda ways: tf.add_n(ways) / len(ways),
    "mul": lambda ways: ways[0] * ways[1],
    None: list,
}


class _Around(base_layer.Layer):  # type: ignore[misc]
    """A layer that wraps another layer."""

    def __init__(self, layer: Any, **named: Any) -> None:
        super().__init__(**named)
        self.layer = layer

    def get_config(self) -> Any:
        inner = {"class_name": type(self.layer).__name__, "config": self.layer.get_config()}
        return {**super().get_config(), "layer": inner}

    @classmethod
    def from_config(cls, config: Any, custom_objects: Any = None) -> Any:
        config = copy.deepcopy(config)
        inner = layers.deserialize(config.pop("layer"), custom_objects=custom_objects)
        return cls(inner, **config)


class TimeDistributed(_Around):
    """Applies a layer to every step of a sequence."""

    def build(self, input_shape: Any) -> None:
        shape = tf.TensorShape(input_shape).as_list()
        if not self.layer.built:
            self.layer.build(tf.TensorShape([shape[0], *shape[2:]]))
            self.layer.built = True
        super().build(input_shape)

    def call(self, inputs: Any, **named: Any) -> Any:
        shape, sizes = inputs.shape.as_list(), tf.shape(inputs)
        flat = tf.reshape(inputs, tf.concat([[-1], sizes[2:]], 0))
        flat.set_shape([None, *shape[2:]])
        given = {
            k: v for k, v in named.items() if v is not None and self.layer._expects_training_arg
        }
        result = self.layer(flat, **given)
        steps = tf.reshape(result, tf.concat([sizes[:2], tf.shape(result)[1:]], 0))
        steps.set_shape([*shape[:2], *result.shape.as_list()[1:]])
        return steps

    def compute_output_shape(self, input_shape: Any) -> Any:
        shape = tf.TensorShape(input_shape).as_list()
        inner = self.layer.compute_output_shape(tf.TensorShape([shape[0], *shape[2:]])).as_list()
        return tf.TensorShape([inner[0], shape[1], *inner[1:]])


class Bidirectional(_Around):
    """Runs a recurrent layer forwards and a copy of it backwards, and merges their outputs."""

    def __init__(
        self,
        layer: Any,
        merge_mode: str | None = "concat",
        backward_layer: Any = None,
        **named: Any,
    ) -> None:
        if merge_mode not in _MERGED:
            raise ValueError(f"merge_mode must be one of {list(_MERGED)}, not {merge_mode!r}")
        named.setdefault("name", f"bidirectional_{layer.name}")
        # As in Keras: this layer takes over the input shape of the wrapped layer.
        shape = getattr(layer, "_batch_input_shape", None)
        if shape is not None:
            named.setdefault("batch_input_shape", shape)
        super().__init__(layer, **named)
        self.merge_mode = merge_mode
        self.return_sequences = layer.return_sequences
        self.return_state = layer.return_state
        self.supports_masking = True
        self.forward_layer = self._copy(layer, "forward", layer.go_backwards)
        self.backward_layer = backward_layer or self._copy(
            layer, "backward", not layer.go_backwards
        )

    @staticmethod
    def _copy(layer: Any, way: str, go_backwards: bool) -> Any:
        config = layer.get_config()
        config.update(name=f"{way}_{layer.name}", go_backwards=go_backwards)
        return type(layer).from_config(config)

    def call(
        self, inputs: Any, mask: Any = None, training: Any = None, initial_state: Any = None
    ) -> Any:
        half = len(initial_state) // 2 if initial_state is not None else 0
        first = initial_state[:half] if initial_state is not None else None
        second = initial_state[half:] if initial_state is not None else None
        forward = self.forward_layer(inputs, mask=mask, training=training, initial_state=first)
        backward = self.backward_layer(inputs, mask=mask, training=training, initial_state=second)
        states: list[Any] = []
        if self.return_state:
            states = [*forward[1:], *backward[1:]]
            forward, backward = forward[0], backward[0]
        if self.return_sequences:
            backward = tf.reverse(backward, [1])
        result = _MERGED[self.merge_mode]([forward, backward])
        if not self.return_state:
            return result
        return [*result, *states] if self.merge_mode is None else [result, *states]

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        kept = mask if self.return_sequences else None
        return [kept, kept] if self.merge_mode is None else kept

    def get_config(self) -> Any:
        return {**super().get_config(), "merge_mode": self.merge_mode}


class LayerNormalization(base_layer.Layer):  # type: ignore[misc]
    """Normalizes each example to mean 0 and variance 1 over `axis`, the last one by default."""

    def __init__(
        self,
        axis: Any = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        **named: Any,
    ) -> None:
        super().__init__(**named)
        self.axis, self.epsilon, self.center, self.scale = axis, epsilon, center, scale
        self.beta_initializer = initializers.get(beta_initializer)
        self.gamma_initializer = initializers.get(gamma_initializer)
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        sizes = tf.TensorShape(input_shape).as_list()
        axes = self.axis if isinstance(self.axis, (list, tuple)) else [self.axis]
        self._axes = sorted(axis % len(sizes) for axis in axes)
        shape = [sizes[axis] for axis in self._axes]
        self._wide = [sizes[axis] if axis in self._axes else 1 for axis in range(len(sizes))]
        self.gamma = self.add_weight("gamma", shape, initializer=self.gamma_initializer)
        self.beta = self.add_weight("beta", shape, initializer=self.beta_initializer)
        super().build(input_shape)

    def call(self, inputs: Any) -> Any:
        mean, variance = tf.nn.moments(inputs, self._axes, keepdims=True)
        gamma = tf.reshape(self.gamma, self._wide) if self.scale else None
        beta = tf.reshape(self.beta, self._wide) if self.center else None
        return tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, self.epsilon)

    def get_config(self) -> Any:
        names = ("axis", "epsilon", "center", "scale")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


class GaussianNoise(base_layer.Layer):  # type: ignore[misc]
    """Adds noise with the standard deviation `stddev` while training."""

    def __init__(self, stddev: float, **named: Any) -> None:
        super().__init__(**named)
        self.stddev = stddev
        self.supports_masking = True

    def call(self, inputs: Any, training: Any = None) -> Any:
        noised = lambda: inputs + tf.random_normal(tf.shape(inputs), 0.0, self.stddev)  # noqa: E731
        return backend.in_train_phase(noised, inputs, training=training)

    def get_config(self) -> Any:
        return {**super().get_config(), "stddev": self.stddev}


MISSING = (Bidirectional, GaussianNoise, LayerNormalization, TimeDistributed)
