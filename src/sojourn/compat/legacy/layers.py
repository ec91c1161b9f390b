"""`tf.layers`: the layers that TensorFlow still contains, and batch normalization.

With Keras 3 the public `tf.compat.v1.layers` raises, but the wheel has the implementation of
dense, convolution and pooling layers. Batch normalization was removed with Keras 2, so this module
implements it.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.framework.smart_cond import smart_cond, smart_constant_value
from tensorflow.python.keras.engine.input_spec import InputSpec
from tensorflow.python.keras.legacy_tf_layers import base, convolutional, core, pooling

from sojourn.compat.legacy.namespaces import Namespace

Layer = base.Layer


class Normalizes:
    """Normalizes over every axis except `axis`, with moving averages for inference.

    A mixin for the two base classes of layers: that of `tf.layers` and that of `tf.keras`.
    """

    add_weight: Any
    add_update: Any
    dtype: Any

    def __init__(
        self,
        axis: int = -1,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = None,
        gamma_initializer: Any = None,
        moving_mean_initializer: Any = None,
        moving_variance_initializer: Any = None,
        beta_regularizer: Any = None,
        gamma_regularizer: Any = None,
        beta_constraint: Any = None,
        gamma_constraint: Any = None,
        renorm: bool = False,
        renorm_clipping: Any = None,
        renorm_momentum: float = 0.99,
        fused: bool | None = None,
        trainable: bool = True,
        virtual_batch_size: int | None = None,
        adjustment: Any = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(trainable=trainable, name=name, **kwargs)  # type: ignore[call-arg]
        if renorm or virtual_batch_size or adjustment:
            raise NotImplementedError(
                "batch normalization with renorm, virtual_batch_size or adjustment left "
                "TensorFlow with Keras 2; install tf_keras and use its layer"
            )
        self.axis = axis[0] if isinstance(axis, (list, tuple)) else axis
        self.momentum, self.epsilon = momentum, epsilon
        self.center, self.scale = center, scale
        self.beta_initializer = _initializer(beta_initializer, tf.zeros_initializer)
        self.gamma_initializer = _initializer(gamma_initializer, tf.ones_initializer)
        self.mean_initializer = _initializer(moving_mean_initializer, tf.zeros_initializer)
        self.variance_initializer = _initializer(moving_variance_initializer, tf.ones_initializer)
        self.beta_regularizer, self.gamma_regularizer = beta_regularizer, gamma_regularizer
        self.beta_constraint, self.gamma_constraint = beta_constraint, gamma_constraint

    def build(self, input_shape: Any) -> None:
        shape = tf.TensorShape(input_shape)
        self._axis = self.axis % shape.ndims
        width = tf.dimension_value(shape[self._axis])
        if width is None:
            raise ValueError(f"axis {self._axis} of the input {shape} must be known")
        self.input_spec = InputSpec(ndim=shape.ndims, axes={self._axis: width})
        kind = tf.float32 if self.dtype in (None, "float16", "bfloat16") else self.dtype
        self.gamma = self.beta = None
        if self.scale:
            self.gamma = self.add_weight(
                "gamma",
                [width],
                kind,
                self.gamma_initializer,
                self.gamma_regularizer,
                constraint=self.gamma_constraint,
            )
        if self.center:
            self.beta = self.add_weight(
                "beta",
                [width],
                kind,
                self.beta_initializer,
                self.beta_regularizer,
                constraint=self.beta_constraint,
            )
        self.moving_mean = self.add_weight(
            "moving_mean", [width], kind, self.mean_initializer, trainable=False
        )
        self.moving_variance = self.add_weight(
            "moving_variance", [width], kind, self.variance_initializer, trainable=False
        )
        self.built = True

    def call(self, inputs: Any, training: Any = False) -> Any:
        training = False if training is None else training
        axes = [a for a in range(inputs.shape.ndims) if a != self._axis]
        # Half precision is normalized in full precision, as the fused kernel did.
        wide = tf.cast(inputs, self.moving_mean.dtype.base_dtype)
        mean, variance = smart_cond(
            training,
            lambda: tuple(tf.nn.moments(wide, axes)),
            lambda: (tf.identity(self.moving_mean), tf.identity(self.moving_variance)),
        )
        always = smart_constant_value(training)
        if always is None or always:
            # A graph that never trains gets no assignments, so that it can be frozen.
            for average, value in ((self.moving_mean, mean), (self.moving_variance, variance)):
                self.add_update(self._moved(average, value, training))
        result = tf.nn.batch_normalization(
            wide,
            self._spread(mean, inputs),
            self._spread(variance, inputs),
            self._spread(self.beta, inputs),
            self._spread(self.gamma, inputs),
            self.epsilon,
        )
        result.set_shape(inputs.shape)
        return tf.cast(result, inputs.dtype)

    def _moved(self, average: Any, value: Any, training: Any) -> Any:
        # Outside training the decay is 0, so that one op serves both modes.
        decay = smart_cond(
            training,
            lambda: tf.constant(1.0 - self.momentum, average.dtype.base_dtype),
            lambda: tf.constant(0.0, average.dtype.base_dtype),
        )
        return tf.assign_sub(average, (average - tf.stop_gradient(value)) * decay)

    def _spread(self, value: Any, inputs: Any) -> Any:
        if value is None or self._axis == inputs.shape.ndims - 1:
            return value
        shape = [1] * inputs.shape.ndims
        shape[self._axis] = -1
        return tf.reshape(value, shape)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape


class BatchNormalization(Normalizes, base.Layer):  # type: ignore[misc]
    """The layer of `tf.layers`: each call adds its updates to `tf.GraphKeys.UPDATE_OPS` once."""


def _initializer(given: Any, default: Any) -> Any:
    if given is None:
        return default()
    return given() if isinstance(given, type) else given


def batch_normalization(
    inputs: Any,
    *settings: Any,
    training: Any = False,
    name: str | None = None,
    reuse: Any = None,
    **named: Any,
) -> Any:
    """Apply a layer with these settings; `training` may be a boolean tensor."""
    named |= {"name": name, "_reuse": reuse, "_scope": name}
    return BatchNormalization(*settings, **named)(inputs, training=training)


def namespace() -> Namespace:
    """Return the module `tf.layers`."""
    return Namespace(
        "tensorflow.layers",
        (core, convolutional, pooling),
        {
            "Layer": base.Layer,
            "InputSpec": InputSpec,
            "BatchNormalization": BatchNormalization,
            "BatchNorm": BatchNormalization,
            "batch_normalization": batch_normalization,
            "batch_norm": batch_normalization,
        },
        shown_as="tf.layers",
    )
