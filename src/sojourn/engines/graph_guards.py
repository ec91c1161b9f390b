"""Guard ops that engines compute differently from TensorFlow for some values.

The guards are ops on which the engines agree, added to the graph before it is converted. In ONNX, a
negative index counts from the end, where TensorFlow refuses it, and a slice's index that is too far
below zero means the first element; ONNX Runtime reduces integers (sum, product) as floats. LiteRT
uses the low half of a 64-bit index, casts a float that is too large to the nearest integer, and
divides the least integer by -1 wrongly or crashes the process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from sojourn.errors import ModelError

_INT32, _INT64, _BOOL = (t.as_datatype_enum for t in (tf.int32, tf.int64, tf.bool))
# Suffixes of an op's output inside a function; a graph does not need them.
_OUTPUTS = {
    **dict.fromkeys(("Const", "SelectV2", "Sum", "Prod", "Shape", "StridedSlice"), ":output:0"),
    **dict.fromkeys(("Cast", "Abs", "Neg"), ":y:0"),
    "LogicalAnd": ":z:0",
    **dict.fromkeys("Equal Less Minimum Maximum AddV2 Sub Mul FloorDiv FloorMod".split(), ":z:0"),
}
_SIGNED = {t.as_datatype_enum for t in (tf.int8, tf.int16, tf.int32, tf.int64)}
_DIVIDING = frozenset("FloorDiv FloorMod Div TruncateDiv Mod TruncateMod".split())
# Op -> position of its index input.
_OF_ONNX = {
    "Gather": 1,
    "GatherV2": 1,
    "GatherNd": 1,
    "OneHot": 0,
    "ResourceGather": 1,
    **{f"TensorScatter{how}": 1 for how in ("Update", "Add", "Sub", "Max", "Min")},
}
_OF_LITERT = {"OneHot": 0, **{f"UnsortedSegment{how}": 1 for how in ("Sum", "Prod", "Max", "Min")}}
_SLICES = ("StridedSlice", "Slice")  # inputs 1 and 2: begin, and end or size
_TYPE_OF_INDEX = ("Tindices", "TI")


def guard(graph_def: Any, to: str) -> None:
    """Add the guards for one engine to a graph and its functions, in place."""
    rules = _RULES[to]
    parts = [(graph_def.node, False), *((f.node_def, True) for f in graph_def.library.function)]
    for nodes, is_function in parts:
        for node in nodes:
            _complete(node)
        named = {node.name: node for node in nodes}
        for node in list(nodes):
            for rule in rules:
                rule(_Guarded(nodes, node, is_function, named))


def _complete(node: Any) -> None:
    """Add attributes that were omitted because they have their default values."""
    definition = op_def_registry.get(node.op)
    for attribute in () if definition is None else definition.attr:
        if attribute.HasField("default_value") and attribute.name not in node.attr:
            node.attr[attribute.name].CopyFrom(attribute.default_value)


class _Guarded:
    """One node of a graph or function, and the guard nodes that are added before it."""

    def __init__(self, nodes: Any, node: Any, is_function: bool, named: dict[str, Any]) -> None:
        self.node = node
        self._nodes = nodes
        self._is_function = is_function
        self._named = named
        self._count = 0

    def source(self, place: int) -> Any:
        """Return the node that produces an input; None for an argument of a function."""
        return self._named.get(self.node.input[place].partition(":")[0])

    def is_constant(self, place: int) -> bool:
        source = self.source(place)
        return source is not None and source.op == "Const"

    def may_be(self, place: int, value: int) -> bool:
        """Whether an input can have this value: it is not constant, or contains the value."""
        if not self.is_constant(place):
            return True
        return value in tf.make_ndarray(self.source(place).attr["value"].tensor)

    def add(self, op: str, inputs: Sequence[str], **types: int) -> str:
        """Add a node and return the name of its output."""
        self._count += 1
        name = f"{self.node.name}/guard{self._count}"
        made = self._nodes.add(op=op, name=name, input=inputs)
        for key, dtype in types.items():
            made.attr[key].type = dtype
        _complete(made)
        return f"{name}{_OUTPUTS[op]}" if self._is_function else name

    @property
    def last(self) -> Any:
        """The node that was added last."""
        return self._nodes[-1]

    def become(self, op: str, value: str, dtype: int) -> None:
        """Turn the node into one of another op, whose output has the same name."""
        controls = [name for name in self.node.input if name.startswith("^")]
        del self.node.input[:]
        self.node.input.extend([value, *controls])
        self.node.op = op
        self.node.attr.clear()
        self.node.attr["T"].type = dtype

    def constant(self, value: float | Sequence[float], dtype: int) -> str:
        name = self.add("Const", [], dtype=dtype)
        tensor = tf.make_tensor_proto(value, tf.DType(dtype))
        self.last.attr["value"].tensor.CopyFrom(tensor)
        return name


def _index(made: _Guarded, places: dict[str, int]) -> tuple[int, str]:
    """Return the position of a node's index and the attribute with its type, empty if none."""
    place = places.get(made.node.op, -1)
    kind = next((key for key in _TYPE_OF_INDEX if key in made.node.attr), "")
    return place, kind if place >= 0 and not made.is_constant(place) else ""


def _from_zero(made: _Guarded) -> None:
    """Replace a negative index by one that is out of range."""
    node = made.node
    place, kind = _index(made, _OF_ONNX)
    if not kind or node.attr[kind].type not in (_INT32, _INT64):
        return
    # In a loop, ONNX has 64-bit counters where TensorFlow has 32-bit ones.
    index = made.add("Cast", [node.input[place]], SrcT=node.attr[kind].type, DstT=_INT64)
    is_below = made.add("Less", [index, made.constant(0, _INT64)], T=_INT64)
    beyond = made.constant(tf.int64.max, _INT64)
    node.input[place] = made.add("SelectV2", [is_below, beyond, index], T=_INT64)
    node.attr[kind].type = _INT64


def _not_before_the_first(made: _Guarded) -> None:
    """Replace a slice's index that is too far below zero by one that is out of range.

    This matters where a single element of a dimension is taken: ONNX would take the first element,
    and TensorFlow refuses such an index.
    """
    node = made.node
    if node.op != "StridedSlice" or made.is_constant(1):
        return
    taken = node.attr["shrink_axis_mask"].i
    if not taken:
        return
    begins = made.source(1)
    is_plain = not (node.attr["ellipsis_mask"].i or node.attr["new_axis_mask"].i)
    if begins is None or begins.op != "Pack" or not is_plain:
        raise ModelError(f"StridedSlice ({node.name}) has an index that may be out of range")
    count = begins.attr["N"].i
    kind = node.attr["Index"].type
    start, end, step = (made.constant([at], kind) for at in (0, count, 1))
    sizes = made.add("Shape", [node.input[0]], T=node.attr["T"].type, out_type=kind)
    sizes = made.add("StridedSlice", [sizes, start, end, step], T=kind, Index=kind)
    least = made.add("Neg", [sizes], T=kind)
    is_below = made.add("Less", [node.input[1], least], T=kind)
    is_taken = made.constant([bool(taken >> at & 1) for at in range(count)], _BOOL)
    is_below = made.add("LogicalAnd", [is_below, is_taken])
    beyond = made.constant(tf.DType(kind).max, kind)
    node.input[1] = made.add("SelectV2", [is_below, beyond, node.input[1]], T=kind)


def _summed_in_halves(made: _Guarded) -> None:
    """Sum 64-bit integers as two halves: floats hold the sum of many 32-bit integers exactly."""
    node = made.node
    if node.op not in ("Sum", "Prod") or node.attr["T"].type not in (_INT32, _INT64):
        return
    dtype = node.attr["T"].type

    def reduced(what: str) -> str:
        found = made.add(node.op, [what, node.input[1]], T=_INT64, Tidx=node.attr["Tidx"].type)
        made.last.attr["keep_dims"].CopyFrom(node.attr["keep_dims"])
        return found

    def calculated(op: str, one: str, other: str) -> str:
        return made.add(op, [one, other], T=_INT64)

    whole = made.add("Cast", [node.input[0]], SrcT=dtype, DstT=_INT64)
    if node.op == "Sum":
        size = made.constant(2**32, _INT64)
        low = calculated("FloorMod", whole, size)
        high = calculated("FloorDiv", calculated("Sub", whole, low), size)
        high = calculated("Mul", reduced(high), size)
        whole = calculated("AddV2", high, reduced(low))
    else:
        whole = reduced(whole)
    result = made.add("Cast", [whole], SrcT=_INT64, DstT=dtype)
    made.become("Identity", result, dtype)


def _in_32_bits(made: _Guarded) -> None:
    """Clamp 64-bit indices, so that one that is out of range stays so when truncated to 32 bits."""
    node = made.node
    place, kind = _index(made, _OF_LITERT)
    if kind and node.attr[kind].type == _INT64:
        _limit(made, place, -1)
    if node.op in _SLICES and node.attr["Index"].type == _INT64:
        for place in (1, 2):
            if not made.is_constant(place):
                _limit(made, place, tf.int32.min)


def _limit(made: _Guarded, place: int, least: int) -> None:
    bounds = made.constant(tf.int32.max, _INT64), made.constant(least, _INT64)
    index = made.add("Minimum", [made.node.input[place], bounds[0]], T=_INT64)
    made.node.input[place] = made.add("Maximum", [index, bounds[1]], T=_INT64)


def _as_processors_cast(made: _Guarded) -> None:
    """Cast floats that are too large for the integer type, and NaN, to its least integer."""
    node = made.node
    if node.op != "Cast" or made.is_constant(0):
        return
    dtype = node.attr["SrcT"].type
    most = {_INT32: 2.0**31, _INT64: 2.0**63}.get(node.attr["DstT"].type)
    if most is None or not tf.DType(dtype).is_floating:
        return
    size = made.add("Abs", [node.input[0]], T=dtype)
    fits = made.add("Less", [size, made.constant(most, dtype)], T=dtype)
    least = made.constant(-most, dtype)
    node.input[0] = made.add("SelectV2", [fits, node.input[0], least], T=dtype)


def _by_minus_one(made: _Guarded) -> None:
    """Divide -x by 1 instead of x by -1: the least integer stays itself and does not trap."""
    node = made.node
    if node.op not in _DIVIDING or node.attr["T"].type not in _SIGNED or not made.may_be(1, -1):
        return
    dtype = node.attr["T"].type
    whole, by = node.input[:2]
    is_minus_one = made.add("Equal", [by, made.constant(-1, dtype)], T=dtype)
    negative = made.add("Neg", [whole], T=dtype)
    node.input[0] = made.add("SelectV2", [is_minus_one, negative, whole], T=dtype)
    node.input[1] = made.add("SelectV2", [is_minus_one, made.constant(1, dtype), by], T=dtype)


_RULES: dict[str, tuple[Callable[[_Guarded], None], ...]] = {
    "onnxruntime": (_from_zero, _not_before_the_first, _summed_in_halves),
    "litert": (_in_32_bits, _as_processors_cast, _by_minus_one),
}
