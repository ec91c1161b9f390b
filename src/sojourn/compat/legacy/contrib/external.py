"""Optimizers of `tf.contrib.opt` that run outside the graph, such as SciPy's."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf


class ExternalOptimizerInterface(ABC):
    """Minimizes a loss with an external function over one flat vector of all variables."""

    def __init__(
        self,
        loss: Any,
        var_list: Any = None,
        equalities: Any = None,
        inequalities: Any = None,
        var_to_bounds: Any = None,
        **optimizer_kwargs: Any,
    ) -> None:
        self.optimizer_kwargs, self._loss = optimizer_kwargs, loss
        self._vars = list(tf.trainable_variables() if var_list is None else var_list)
        self._equalities, self._inequalities = list(equalities or ()), list(inequalities or ())
        self._shapes = [tuple(var.shape.as_list()) for var in self._vars]
        self._ends = np.cumsum([np.prod(shape, dtype=int) for shape in self._shapes])
        self._packed_bounds = self._bounds(var_to_bounds) if var_to_bounds is not None else None
        self._packed_var = _packed(self._vars)
        self._gradient = self._gradients(loss)
        self._slopes = {c: self._gradients(c) for c in self._equalities + self._inequalities}
        self._values = [tf.placeholder(var.dtype.base_dtype) for var in self._vars]
        self._updates = [
            var.assign(tf.reshape(value, shape))
            for var, value, shape in zip(self._vars, self._values, self._shapes, strict=True)
        ]

    def _bounds(self, var_to_bounds: Any) -> list[tuple[float, float]]:
        by_name = {var.name: bounds for var, bounds in var_to_bounds.items()}
        limits: list[tuple[float, float]] = []
        for var, shape in zip(self._vars, self._shapes, strict=True):
            lower, upper = by_name.get(var.name, (-np.inf, np.inf))
            each = (np.broadcast_to(bound, shape).ravel().tolist() for bound in (lower, upper))
            limits.extend(zip(*each, strict=True))
        return limits

    def _gradients(self, value: Any) -> Any:
        found = tf.gradients(value, self._vars)
        return _packed(
            tf.zeros_like(var) if grad is None else tf.convert_to_tensor(grad)
            for var, grad in zip(self._vars, found, strict=True)
        )

    def _unpacked(self, packed: Any) -> list[Any]:
        parts = np.split(np.asarray(packed), self._ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def minimize(
        self,
        session: Any = None,
        feed_dict: Any = None,
        fetches: Any = None,
        step_callback: Any = None,
        loss_callback: Any = None,
        **run_kwargs: Any,
    ) -> None:
        """Minimize the loss, and set the variables to the best values found."""
        session = session or tf.get_default_session()
        seen = list(fetches or ())

        def run(wanted: list[Any], packed: Any) -> Any:
            tried = dict(zip(self._vars, self._unpacked(packed), strict=True))
            return session.run(wanted, feed_dict={**tried, **(feed_dict or {})})

        def loss_and_gradient(packed: Any) -> Any:
            loss, gradient, *others = run([self._loss, self._gradient, *seen], packed)
            if loss_callback is not None:
                loss_callback(*others)
            return loss, gradient

        def functions(constraints: list[Any]) -> tuple[list[Any], list[Any]]:
            return (
                [lambda packed, c=c: run([c], packed)[0] for c in constraints],
                [lambda packed, c=c: run([self._slopes[c]], packed)[0] for c in constraints],
            )

        equal, equal_slopes = functions(self._equalities)
        unequal, unequal_slopes = functions(self._inequalities)
        best = self._minimize(
            initial_val=session.run(self._packed_var),
            loss_grad_func=loss_and_gradient,
            equality_funcs=equal,
            equality_grad_funcs=equal_slopes,
            inequality_funcs=unequal,
            inequality_grad_funcs=unequal_slopes,
            packed_bounds=self._packed_bounds,
            step_callback=step_callback,
            optimizer_kwargs=self.optimizer_kwargs,
        )
        found = dict(zip(self._values, self._unpacked(best), strict=True))
        session.run(self._updates, feed_dict=found, **run_kwargs)

    @abstractmethod
    def _minimize(self, initial_val: Any, loss_grad_func: Any, **kwargs: Any) -> Any:
        """Return the vector with the least loss."""


class ScipyOptimizerInterface(ExternalOptimizerInterface):
    """`scipy.optimize.minimize`, with ``L-BFGS-B`` unless another `method` is named."""

    def _minimize(self, initial_val: Any, loss_grad_func: Any, **kwargs: Any) -> Any:
        minimize = importlib.import_module("scipy.optimize").minimize

        def as_scipy_wants(packed: Any) -> Any:
            loss, gradient = loss_grad_func(packed)
            return float(loss), np.asarray(gradient, np.float64)

        limits = [
            {"type": kind, "fun": function, "jac": slope}
            for kind, name in (("eq", "equality"), ("ineq", "inequality"))
            for function, slope in zip(
                kwargs[f"{name}_funcs"], kwargs[f"{name}_grad_funcs"], strict=True
            )
        ]
        options = {"method": "L-BFGS-B", **kwargs["optimizer_kwargs"]}
        if limits:
            options["constraints"] = limits
        if kwargs["packed_bounds"] is not None:
            options["bounds"] = kwargs["packed_bounds"]
        if kwargs["step_callback"] is not None:
            options["callback"] = kwargs["step_callback"]
        start = np.asarray(initial_val, np.float64)
        result = minimize(as_scipy_wants, start, jac=True, **options)
        tf.logging.info("Optimization terminated: %s", result.message)
        return result.x


def _packed(values: Any) -> Any:
    return tf.concat([tf.reshape(value, [-1]) for value in values], 0)
