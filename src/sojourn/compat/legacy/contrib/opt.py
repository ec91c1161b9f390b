"""`tf.contrib.opt`: the most frequently used optimizers."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import gen_training_ops

from sojourn.compat.legacy import removed
from sojourn.compat.legacy.contrib import external
from sojourn.compat.legacy.namespaces import adopt


class LazyAdamOptimizer(tf.train.AdamOptimizer):  # type: ignore[misc]
    """Adam that updates only the rows of an embedding that a step used."""

    def _apply_sparse(self, grad: Any, var: Any) -> Any:
        beta1_power, beta2_power = self._get_beta_accumulators()
        kind = var.dtype.base_dtype
        one, two = tf.cast(self._beta1_t, kind), tf.cast(self._beta2_t, kind)
        rate = tf.cast(self._lr_t, kind) * tf.sqrt(1 - tf.cast(beta2_power, kind))
        rate = rate / (1 - tf.cast(beta1_power, kind))
        m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
        new_m = one * tf.gather(m, grad.indices) + (1 - one) * grad.values
        new_v = two * tf.gather(v, grad.indices) + (1 - two) * tf.square(grad.values)
        moved = rate * new_m / (tf.sqrt(new_v) + tf.cast(self._epsilon_t, kind))
        return tf.group(
            tf.scatter_update(m, grad.indices, new_m),
            tf.scatter_update(v, grad.indices, new_v),
            tf.scatter_sub(var, grad.indices, moved),
        )

    def _resource_apply_sparse(self, grad: Any, handle: Any, indices: Any) -> Any:
        return self._apply_sparse(tf.IndexedSlices(grad, indices), handle)


class NadamOptimizer(tf.train.AdamOptimizer):  # type: ignore[misc]
    """Adam with Nesterov momentum."""

    def _step(self, update: Any, var: Any, m: Any, v: Any, grad: Any) -> Any:
        numbers = (
            *self._get_beta_accumulators(),
            self._lr_t,
            self._beta1_t,
            self._beta2_t,
            self._epsilon_t,
        )
        kind = grad.dtype.base_dtype
        fixed = [tf.cast(number, kind) for number in numbers]
        return update(var, m, v, *fixed, grad, use_locking=self._use_locking, use_nesterov=True)

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
        return self._step(gen_training_ops.apply_adam, var, m, v, grad).op

    def _resource_apply_dense(self, grad: Any, var: Any) -> Any:
        m, v = self.get_slot(var, "m").handle, self.get_slot(var, "v").handle
        return self._step(gen_training_ops.resource_apply_adam, var.handle, m, v, grad)

    # As in contrib, every row is updated, also rows without a gradient.
    def _apply_sparse(self, grad: Any, var: Any) -> Any:
        return self._apply_dense(tf.convert_to_tensor(grad), var)

    def _resource_apply_sparse(self, grad: Any, handle: Any, indices: Any) -> Any:
        dense = tf.convert_to_tensor(tf.IndexedSlices(grad, indices, tf.shape(handle)))
        return self._resource_apply_dense(dense, handle)


class DecoupledWeightDecayExtension:
    """Mixin, placed before an optimizer class, that decays weights separately from the gradient."""

    def __init__(self, weight_decay: Any, *args: Any, **kwargs: Any) -> None:
        self._weight_decay = weight_decay
        super().__init__(*args, **kwargs)

    def minimize(self, loss: Any, *args: Any, decay_var_list: Any = None, **kwargs: Any) -> Any:
        """Minimize as the optimizer does; only `decay_var_list`, if given, is decayed."""
        self._decayed = decay_var_list
        return super().minimize(loss, *args, **kwargs)  # type: ignore[misc]

    def apply_gradients(
        self,
        grads_and_vars: Any,
        global_step: Any = None,
        name: str | None = None,
        decay_var_list: Any = None,
    ) -> Any:
        """Decay the variables, then apply the gradients as the optimizer does."""
        pairs = list(grads_and_vars)
        wanted = decay_var_list or getattr(self, "_decayed", None)
        names = None if wanted is None else {var.name for var in wanted}
        rate = self._weight_decay() if callable(self._weight_decay) else self._weight_decay
        shrink = [
            tf.assign_sub(var, tf.cast(rate, var.dtype.base_dtype) * var)
            for grad, var in pairs
            if grad is not None and (names is None or var.name in names)
        ]
        with tf.control_dependencies([grad for grad, _ in pairs if grad is not None]):
            shrunk = tf.group(*shrink)
        with tf.control_dependencies([shrunk]):
            return super().apply_gradients(pairs, global_step, name)  # type: ignore[misc]


class AdamWOptimizer(DecoupledWeightDecayExtension, tf.train.AdamOptimizer):  # type: ignore[misc]
    """Adam with decoupled weight decay."""


_Momentum: Any = tf.train.MomentumOptimizer


class MomentumWOptimizer(DecoupledWeightDecayExtension, _Momentum):  # type: ignore[misc]
    """Momentum with decoupled weight decay."""


def extend_with_decoupled_weight_decay(base_optimizer: type) -> type:
    """Return a subclass of `base_optimizer` with decoupled weight decay."""
    return type(base_optimizer.__name__, (DecoupledWeightDecayExtension, base_optimizer), {})


class MovingAverageOptimizer(tf.train.Optimizer):  # type: ignore[misc]
    """Keeps moving averages of the trained variables; its saver saves them in place of those."""

    def __init__(
        self,
        opt: Any,
        average_decay: float = 0.9999,
        num_updates: Any = None,
        sequential_update: bool = True,
    ) -> None:
        super().__init__(False, "MovingAverageOptimizer")
        self._opt = opt
        self._average = tf.train.ExponentialMovingAverage(average_decay, num_updates=num_updates)
        self._swapped: dict[str, Any] = {}

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the gradients with the inner optimizer."""
        return self._opt.compute_gradients(*args, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
    ) -> Any:
        """Apply the gradients with the inner optimizer, then update the averages."""
        pairs = list(grads_and_vars)
        trained = [var for _, var in pairs]
        moved = self._opt.apply_gradients(pairs, global_step, name)
        with tf.control_dependencies([moved]):
            averaged = self._average.apply(trained)
        for var in trained:
            average = self._average.average(var)
            self._swapped.update({var.op.name: average, average.op.name: var})
        return averaged

    def swapping_saver(
        self, var_list: Any = None, name: str = "swapping_saver", **rest: Any
    ) -> Any:
        """Return a saver that stores each average under its variable's name, and vice versa."""
        names = {var.op.name: var for var in var_list or tf.global_variables()}
        return tf.train.Saver({**names, **self._swapped}, name=name, **rest)


adopt(globals(), external)
__getattr__ = removed.missing_name("tf.contrib.opt")
