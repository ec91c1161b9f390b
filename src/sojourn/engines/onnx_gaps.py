"""Conversions of TensorFlow ops to ONNX ops that tf2onnx lacks or gets wrong.

Found by comparing single ops: division of negative integers was rounded the wrong way, division of
the least integer by -1 crashed the process, integers were compared as floats, the maximum of 64-bit
integers was chosen by their lower halves, and the logarithm of doubles was computed in float32.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

_ONNX_INT64 = 7


class _Rewriting:
    """One node of tf2onnx's graph that is being replaced by others."""

    def __init__(self, context: Any, node: Any) -> None:
        self._context = context
        self._node = node
        self._utils = importlib.import_module("tf2onnx.utils")
        self._facts = {"shapes": node.output_shapes, "dtypes": node.output_dtypes}
        self.inputs: list[str] = list(node.input)
        self.dtype = context.get_dtype(node.input[0])
        self.numpy_type = np.dtype(self._utils.map_onnx_to_numpy_type(self.dtype))
        self.is_of_integers = self.numpy_type.kind in "iu"
        if self.is_of_integers and self.numpy_type != np.uint64:
            # In a loop, ONNX has 64-bit counters where TensorFlow has 32-bit ones.
            self.numpy_type = np.dtype(np.int64)
            self.inputs = [self.make("Cast", [each], to=_ONNX_INT64) for each in self.inputs]

    def make(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        made: str = self._context.make_node(op, list(inputs), attr=attributes).output[0]
        return made

    def constant(self, value: Any) -> str:
        name = self._utils.make_name(self._node.name)
        made: str = self._context.make_const(name, np.array(value, self.numpy_type)).output[0]
        return made

    def may_be(self, place: int, value: int) -> bool:
        """Whether an input can have this value: it is not constant, or contains the value."""
        source = self._node.inputs[place]
        if source is None or not source.is_const():
            return True
        return value in source.get_tensor_value(as_list=False)

    def finish(self, op: str, inputs: Iterable[str], **attributes: Any) -> None:
        """Put this op in the place of the node."""
        node = self._node
        self._context.remove_node(node.name)
        self._context.make_node(
            op, list(inputs), outputs=node.output, name=node.name, attr=attributes, **self._facts
        )

    def finish_as_was(self, op: str, inputs: Iterable[str]) -> None:
        """Put this op in the place of the node, cast back to the node's dtype."""
        self.finish("Cast", [self.make(op, list(inputs))], to=self.dtype)


def _erfc(made: _Rewriting) -> None:
    made.finish("Sub", [made.constant(1), made.make("Erf", made.inputs)])


def _divides(made: _Rewriting) -> None:
    """Divide -x by 1 instead of x by -1: the least integer stays itself and does not trap."""
    if made.numpy_type != np.int64 or not made.may_be(1, -1):
        return
    whole, by = made.inputs
    is_minus_one = made.make("Equal", [by, made.constant(-1)])
    made.inputs = [
        made.make("Where", [is_minus_one, made.make("Neg", [whole]), whole]),
        made.make("Where", [is_minus_one, made.constant(1), by]),
    ]


def _floor_div(made: _Rewriting) -> None:
    _divides(made)
    quotient = made.make("Div", made.inputs)
    if not made.is_of_integers:
        return made.finish("Floor", [quotient])
    # ONNX's Div rounds towards zero. Where its remainder is not Mod's, the quotient is 1 too high.
    left = made.make("Sub", [made.inputs[0], made.make("Mul", [quotient, made.inputs[1]])])
    is_exact = made.make("Equal", [left, made.make("Mod", made.inputs)])
    one = made.make("Cast", [made.make("Not", [is_exact])], to=_ONNX_INT64)
    return made.finish_as_was("Sub", [quotient, one])


def _floor_mod(made: _Rewriting) -> None:
    if made.is_of_integers:
        _divides(made)
        return made.finish_as_was("Mod", made.inputs)
    # The remainder of a large float must not be computed from its quotient, which is rounded.
    by, zero = made.inputs[1], made.constant(0)
    left = made.make("Mod", made.inputs, fmod=1)
    is_other_side = made.make(
        "Less", [made.make("Mul", [made.make("Sign", [left]), made.make("Sign", [by])]), zero]
    )
    return made.finish("Where", [is_other_side, made.make("Add", [left, by]), left])


def _truncate_div(made: _Rewriting) -> None:
    _divides(made)
    made.finish_as_was("Div", made.inputs)  # plain division for floats, as in TensorFlow


def _truncate_mod(made: _Rewriting) -> None:
    if not made.is_of_integers:
        return made.finish("Mod", made.inputs, fmod=1)  # it computes integers as floats
    _divides(made)
    whole, by = made.inputs
    return made.finish_as_was("Sub", [whole, made.make("Mul", [made.make("Div", [whole, by]), by])])


def _expm1(made: _Rewriting) -> None:
    """Near zero, use tanh(x / 2), because exp(x) - 1 would lose its digits."""
    x, one, two = made.inputs[0], made.constant(1), made.constant(2)
    half = made.make("Tanh", [made.make("Div", [x, two])])
    exact = made.make("Div", [made.make("Mul", [half, two]), made.make("Sub", [one, half])])
    plain = made.make("Sub", [made.make("Exp", [x]), one])
    made.finish("Where", [made.make("Less", [made.make("Abs", [x]), one]), exact, plain])


def _as(op: str) -> Callable[[_Rewriting], None]:
    return lambda made: made.finish(op, made.inputs)


def _the_one(op: str, is_better: str) -> Callable[[_Rewriting], None]:
    def rewrite(made: _Rewriting) -> None:
        if made.numpy_type != np.int64:
            return made.finish(op, made.inputs)
        is_first = made.make(is_better, made.inputs)
        return made.finish_as_was("Where", [is_first, *made.inputs])

    return rewrite


_GAPS: dict[str, Callable[[_Rewriting], None]] = {
    "Erfc": _erfc,
    "Expm1": _expm1,
    "FloorDiv": _floor_div,
    "FloorMod": _floor_mod,
    "Div": _truncate_div,
    "TruncateDiv": _truncate_div,
    "TruncateMod": _truncate_mod,
    "Less": _as("Less"),
    "LessEqual": _as("LessOrEqual"),
    "Greater": _as("Greater"),
    "GreaterEqual": _as("GreaterOrEqual"),
    "Log": _as("Log"),
    "Maximum": _the_one("Max", "Greater"),
    "Minimum": _the_one("Min", "Less"),
}


def keep_whole_numbers() -> None:
    """Keep tf2onnx from converting large integers to floats, which would round them, in chains of
    casts and at the ends of slices."""
    optimizer = importlib.import_module("tf2onnx.optimizer.back_to_back_optimizer")
    optimizer._func_map.pop(("Cast",), None)
    used_by_slices: Any = importlib.import_module("tf2onnx.onnx_opset.math")
    used_by_slices.make_min_or_max_op = _larger_place


def _larger_place(context: Any, op: str, inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    is_first = context.make_node("Greater", inputs).output[0]
    return context.make_node("Where", [is_first, *inputs], outputs=outputs)


def handlers() -> dict[str, tuple[Callable[..., None], list[Any]]]:
    """Return the conversions as custom op handlers for tf2onnx."""

    def handler(rewrite: Callable[[_Rewriting], None]) -> Callable[..., None]:
        return lambda context, node, name, arguments: rewrite(_Rewriting(context, node))

    return {op: (handler(rewrite), []) for op, rewrite in _GAPS.items()}
