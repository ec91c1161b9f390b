"""What tf2onnx lacks or gets wrong, and models need: ops of TensorFlow in those of ONNX.

Found by comparing single ops: division of integers below zero was rounded the other way, integers
were compared as floats, and an index below zero counted from the end, where TensorFlow refuses it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# Op -> which of its inputs is an index. What is below zero becomes larger than any.
_INDICES = {
    "Gather": 1,
    "GatherV2": 1,
    "GatherNd": 1,
    "OneHot": 0,
    "ResourceGather": 1,
    **{f"TensorScatter{how}": 1 for how in ("Update", "Add", "Sub", "Max", "Min")},
}
_TYPE_OF_INDEX = ("Tindices", "TI")
_ONNX_INT64 = 7
_INT64 = tf.int64.as_datatype_enum
_WHOLE = (tf.int32.as_datatype_enum, _INT64)


def guard_indices(graph_def: Any) -> None:
    """Have an index below zero be out of range for ONNX too, in place, functions included."""
    _guard(graph_def.node, {"Const": "", "Cast": "", "Less": "", "SelectV2": ""})
    # In a function, an output is named.
    named = {"Const": ":output:0", "Cast": ":y:0", "Less": ":z:0", "SelectV2": ":output:0"}
    for function in graph_def.library.function:
        _guard(function.node_def, named)


def _guard(nodes: Any, endings: dict[str, str]) -> None:
    constants = {node.name for node in nodes if node.op == "Const"}
    for node in list(nodes):
        place = _INDICES.get(node.op)
        kind = next((key for key in _TYPE_OF_INDEX if key in node.attr), "")
        if place is None or node.attr[kind].type not in _WHOLE:
            continue
        if node.input[place].partition(":")[0] in constants:
            continue

        def add(op: str, inputs: Sequence[str], at: str = node.name, **types: int) -> str:
            made = nodes.add(op=op, name=f"{at}/from_zero/{op}", input=inputs)
            for key, dtype in types.items():
                made.attr[key].type = dtype
            return f"{made.name}{endings[op]}"

        def constant(value: int, at: str) -> str:
            name = add("Const", [], at, dtype=_INT64)
            nodes[-1].attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.int64, []))
            return name

        # In a loop, ONNX counts in 64 bits where TensorFlow has 32.
        index = add("Cast", [node.input[place]], SrcT=node.attr[kind].type, DstT=_INT64)
        is_below = add("Less", [index, constant(0, f"{node.name}/zero")], T=_INT64)
        beyond = constant(tf.int64.max, f"{node.name}/beyond")
        node.input[place] = add("SelectV2", [is_below, beyond, index], T=_INT64)
        node.attr[kind].type = _INT64


class _Rewriting:
    """One node of tf2onnx's graph, on its way to others."""

    def __init__(self, context: Any, node: Any) -> None:
        self._context = context
        self._node = node
        self._utils = importlib.import_module("tf2onnx.utils")
        self._facts = {"shapes": node.output_shapes, "dtypes": node.output_dtypes}
        self.inputs: list[str] = list(node.input)
        self.dtype = context.get_dtype(node.input[0])
        self.numpy_type = np.dtype(self._utils.map_onnx_to_numpy_type(self.dtype))
        self.is_of_integers = self.numpy_type.kind in "iu"
        if (
            self.is_of_integers and self.numpy_type != np.uint64
        ):  # in a loop, ONNX counts in 64 bits where TensorFlow has 32
            self.inputs = [self.make("Cast", [each], to=_ONNX_INT64) for each in self.inputs]

    def make(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Another node; the name of its output."""
        made: str = self._context.make_node(op, list(inputs), attr=attributes).output[0]
        return made

    def constant(self, value: Any) -> str:
        name = self._utils.make_name(self._node.name)
        made: str = self._context.make_const(name, np.array(value, self.numpy_type)).output[0]
        return made

    def finish(self, op: str, inputs: Iterable[str], **attributes: Any) -> None:
        """What stands where the node was."""
        node = self._node
        self._context.remove_node(node.name)
        self._context.make_node(
            op, list(inputs), outputs=node.output, name=node.name, attr=attributes, **self._facts
        )

    def finish_as_was(self, op: str, inputs: Iterable[str]) -> None:
        """The same, of integers of the size that they had."""
        self.finish("Cast", [self.make(op, list(inputs))], to=self.dtype)


def _erfc(made: _Rewriting) -> None:
    made.finish("Sub", [made.constant(1), made.make("Erf", made.inputs)])


def _floor_div(made: _Rewriting) -> None:
    quotient = made.make("Div", made.inputs)
    if not made.is_of_integers:
        return made.finish("Floor", [quotient])
    # ONNX rounds towards zero. What is left over then is not what is left over below.
    left = made.make("Sub", [made.inputs[0], made.make("Mul", [quotient, made.inputs[1]])])
    is_exact = made.make("Equal", [left, made.make("Mod", made.inputs)])
    one = made.make("Cast", [made.make("Not", [is_exact])], to=_ONNX_INT64)
    return made.finish_as_was("Sub", [quotient, one])


def _floor_mod(made: _Rewriting) -> None:
    if made.is_of_integers:
        return made.finish_as_was("Mod", made.inputs)
    below = made.make("Floor", [made.make("Div", made.inputs)])
    return made.finish("Sub", [made.inputs[0], made.make("Mul", [below, made.inputs[1]])])


def _expm1(made: _Rewriting) -> None:
    """Near zero by the tangent of half of it, where exp(x) - 1 would lose its digits."""
    x, one, two = made.inputs[0], made.constant(1), made.constant(2)
    half = made.make("Tanh", [made.make("Div", [x, two])])
    exact = made.make("Div", [made.make("Mul", [half, two]), made.make("Sub", [one, half])])
    plain = made.make("Sub", [made.make("Exp", [x]), one])
    made.finish("Where", [made.make("Less", [made.make("Abs", [x]), one]), exact, plain])


def _compared(op: str) -> Callable[[_Rewriting], None]:
    return lambda made: made.finish(op, made.inputs)


_GAPS: dict[str, Callable[[_Rewriting], None]] = {
    "Erfc": _erfc,
    "Expm1": _expm1,
    "FloorDiv": _floor_div,
    "FloorMod": _floor_mod,
    "Less": _compared("Less"),
    "LessEqual": _compared("LessOrEqual"),
    "Greater": _compared("Greater"),
    "GreaterEqual": _compared("GreaterOrEqual"),
}


def handlers() -> dict[str, tuple[Callable[..., None], list[Any]]]:
    """As tf2onnx takes them."""

    def handler(rewrite: Callable[[_Rewriting], None]) -> Callable[..., None]:
        return lambda context, node, name, arguments: rewrite(_Rewriting(context, node))

    return {op: (handler(rewrite), []) for op, rewrite in _GAPS.items()}
