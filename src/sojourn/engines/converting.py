"""Convert a TensorFlow graph for another engine, in a worker that ends afterwards.

Ops that cannot give the same answers there are refused before the conversion: those that keep or
change state, draw random numbers, handle text, or compute with half-precision floats.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import convert_to_constants, op_def_registry
from tensorflow.python.grappler import tf_optimizer

from sojourn.engines import graph_guards, onnx_gaps
from sojourn.errors import ModelError

v1 = tf.compat.v1
_OP = re.compile(r"'tf\.(\w+)' op ([^\n]{1,200})")  # in an error of LiteRT's converter
# Its error for an op that it lacks, or lacks for these types: op, node, and types of the inputs.
_LACKING = re.compile(
    r"""(?:"(?:m/)?(?P<node>[^"]*)"\]\): )?"""
    r"""'tf\.(?P<op>\w+)' op is neither a custom op nor a flex op"""
    r"""(?:\n.* : \((?P<types>.*)\) ->)?"""
)
_TYPE = re.compile(r"(f|i|ui)(\d+)>")
_TYPES = {"f": "float", "i": "int", "ui": "uint"}
_OPSET = 18
# Registered as stateful, but only as stateful as the functions they call, which are checked too.
_CALLS = frozenset("StatefulPartitionedCall If While Case For".split())
# Ops that hold or read variables. They are gone once the variables are constants.
_READS = frozenset(
    "VarHandleOp ReadVariableOp ResourceGather ResourceGatherNd Variable VariableV2".split()
)
_PLACEHOLDERS = ("Placeholder", "PlaceholderV2")
_SIZES = ("Shape", "ShapeN", "Size", "Rank")
_MUST_COMPILE = "_XlaMustCompile"
_RANDOM = ("Random", "Multinomial", "TruncatedNormal", "Shuffle", "Dropout")
_CHECKS = frozenset("Assert CheckNumerics CheckNumericsV2 EnsureShape".split())
_HALVES = (tf.float16.as_datatype_enum, tf.bfloat16.as_datatype_enum)
_OF_64_BITS = {t.as_datatype_enum for t in (tf.int64, tf.uint64)}
_LARGE_INTEGERS = _OF_64_BITS | {t.as_datatype_enum for t in (tf.int32, tf.uint32)}
_DOUBLES = {tf.float64.as_datatype_enum}
# Op -> types that an engine, or its converter's output, computes as floats or compares by their
# lower 32 bits.
_INEXACT = {
    "litert": {"Pow": _LARGE_INTEGERS},
    "onnxruntime": {
        "TopKV2": _LARGE_INTEGERS | _DOUBLES,
        "Prod": _LARGE_INTEGERS,  # except for products of sizes, which are small enough
        **dict.fromkeys(("Unique", "UniqueWithCounts"), _DOUBLES),
        **dict.fromkeys(("Max", "Min", "Sign", "Relu", "Relu6", "ClipByValue"), _OF_64_BITS),
        **dict.fromkeys(
            (
                *("Mean", "MaxPool", "MaxPoolV2", "SegmentSum", "SegmentMean", "SegmentProd"),
                *("UnsortedSegmentSum", "UnsortedSegmentProd", "Pow"),
            ),
            _LARGE_INTEGERS,
        ),
    },
}
_ODD_CASTS = {
    "litert": {t.as_datatype_enum for t in (tf.int16, tf.uint16, tf.uint32, tf.uint64)},
    "onnxruntime": {t.as_datatype_enum for t in (tf.uint32, tf.uint64)},
}
_TEXT = tf.string.as_datatype_enum


def convert(session: Any, inputs: Mapping[str, Any], outputs: Mapping[str, Any], to: str) -> bytes:
    """Return the model in an engine's format, with inputs i0, i1, ... and outputs o0, o1, ..."""
    for name, tensor in inputs.items():
        if tensor.op.type not in _PLACEHOLDERS:
            raise ModelError(f"input {name!r} is not a placeholder but a {tensor.op.type}")
    with _quiet():
        graph = _frozen(session, inputs, list(outputs.values()))
        _refuse_what_differs(graph.as_graph_def(), to=to)
        return _MAKERS[to](graph, len(inputs), len(outputs))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the converters' output: they raise everything that matters."""
    logging.disable(logging.CRITICAL)
    kept = [(number, os.dup(number)) for number in (1, 2)]
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        for number, _ in kept:
            os.dup2(nothing, number)
        yield
    finally:
        for number, copy in kept:
            os.dup2(copy, number)
            os.close(copy)
        os.close(nothing)
        logging.disable(logging.NOTSET)


def _frozen(session: Any, inputs: Mapping[str, Any], outputs: list[Any]) -> Any:
    """Return the part of the graph that is needed, with variables as constants and new names."""
    names = list(dict.fromkeys(tensor.op.name for tensor in outputs))
    graph_def = v1.graph_util.extract_sub_graph(session.graph.as_graph_def(add_shapes=True), names)
    used = {node.name for node in graph_def.node}
    if unused := ", ".join(repr(k) for k, tensor in inputs.items() if tensor.op.name not in used):
        raise ModelError(f"it cannot be converted: no output depends on the input {unused}")
    _refuse_what_differs(graph_def, _READS)
    graph_def = convert_to_constants.convert_variables_to_constants_from_session_graph(
        session, graph_def, names
    )
    graph = v1.Graph()
    with graph.as_default():
        given = {
            tensor.name: v1.placeholder(tensor.dtype, tensor.shape, name=f"i{n}")
            for n, tensor in enumerate(inputs.values())
        }
        found = v1.import_graph_def(
            graph_def,
            input_map=given,
            return_elements=[tensor.name for tensor in outputs],
            name="m",
        )
        for n, (tensor, original) in enumerate(zip(found, outputs, strict=True)):
            tensor.set_shape(original.shape)
            tf.identity(tensor, name=f"o{n}")
    return graph


def _refuse_what_differs(graph_def: Any, reads: frozenset[str] = frozenset(), to: str = "") -> None:
    for node, beside in _every_node(graph_def):
        reason = "" if node.op in reads else _reason(node, to)
        if reason and not (node.op == "Prod" and _is_of_sizes(node, beside)):
            name = node.name.removeprefix("m/")
            raise ModelError(f"it cannot be converted: {node.op} ({name}) {reason}")


def _every_node(graph_def: Any) -> Iterable[tuple[Any, Sequence[Any]]]:
    """Yield every node that can run, each with all nodes of its graph or function: those of the
    graph and of every function that it calls, directly or not."""
    functions = {function.signature.name: function for function in graph_def.library.function}
    pending, seen = [(node, graph_def.node) for node in graph_def.node], set()
    while pending:
        node, beside = pending.pop()
        yield node, beside
        called = [node.op]
        for attribute in node.attr.values():
            called += [attribute.func.name, *(each.name for each in attribute.list.func)]
        for name in called:
            if name in functions and name not in seen:
                seen.add(name)
                inside = functions[name].node_def
                pending += [(each, inside) for each in inside]


def _is_of_sizes(node: Any, beside: Sequence[Any]) -> bool:
    """Whether a node depends only on constants and the shapes of tensors."""
    by_name = {each.name: each for each in beside}
    pending, seen = [node], set()
    while pending:
        for source in pending.pop().input:
            name = source.removeprefix("^").partition(":")[0]
            if name not in by_name or by_name[name].op in _PLACEHOLDERS:
                return False
            if name not in seen and by_name[name].op not in _SIZES:
                pending.append(by_name[name])
            seen.add(name)
    return True


def _reason(node: Any, to: str) -> str:
    if any(word in node.op for word in _RANDOM):
        return "draws random numbers"
    if node.op in _CHECKS:
        return "refuses some inputs, which others would take"
    definition = op_def_registry.get(node.op)
    if definition is not None and definition.is_stateful and node.op not in _CALLS:
        return "keeps or changes state"
    types = {attribute.type for attribute in node.attr.values() if attribute.type}
    if definition is not None:
        types |= {end.type for end in (*definition.input_arg, *definition.output_arg)}
    if _TEXT in types:
        return "handles text"
    if not types.isdisjoint(_HALVES):
        return "computes with halves"
    if to in _INEXACT and node.attr["T"].type in _INEXACT[to].get(node.op, ()):
        return f"comes out otherwise in {to} for large whole numbers, or for doubles"
    is_odd = node.op == "Cast" and node.attr["DstT"].type in _ODD_CASTS.get(to, ())
    if is_odd and tf.DType(node.attr["SrcT"].type).is_floating:
        return "makes whole numbers of floats, of large ones in another way"
    return ""


@contextlib.contextmanager
def _refused_by(converter: str) -> Iterator[None]:
    try:
        yield
    except OSError:
        raise  # a fault of the machine, not of the model
    except Exception as error:  # converters raise errors of any type, from Python or C++
        raise ModelError(f"{converter} refuses it: {_essence(error)}") from None


def _to_litert(graph: Any, inputs: int, outputs: int) -> bytes:
    graph_def = graph.as_graph_def(add_shapes=True)
    graph_guards.guard(graph_def, "litert")
    converter = v1.lite.TFLiteConverter(
        graph_def,
        [graph.get_tensor_by_name(f"i{n}:0") for n in range(inputs)],
        [graph.get_tensor_by_name(f"o{n}:0") for n in range(outputs)],
    )
    with _refused_by("LiteRT's converter"):
        made: bytes = converter.convert()
    return made


def _to_onnx(graph: Any, inputs: int, outputs: int) -> bytes:
    try:
        from_graph_def = importlib.import_module("tf2onnx.convert").from_graph_def
    except ModuleNotFoundError:
        needed = "tf2onnx, which is not installed: pip install 'sojourn[convert]'"
        raise ModelError(f"converting for ONNX Runtime needs {needed}") from None
    given, wanted = [f"i{n}:0" for n in range(inputs)], [f"o{n}:0" for n in range(outputs)]
    with _refused_by("tf2onnx"):
        graph_def = _inlined(graph, given, wanted)
        graph_guards.guard(graph_def, "onnxruntime")
        onnx_gaps.keep_whole_numbers()
        model, _ = from_graph_def(
            graph_def,
            input_names=given,
            output_names=wanted,
            opset=_OPSET,
            custom_op_handlers=onnx_gaps.handlers(),
        )
        made: bytes = model.SerializeToString()  # 2 GiB at most
    return made


def _inlined(graph: Any, inputs: list[str], outputs: list[str]) -> Any:
    """Inline all functions except those of loops and conditions, which have no other form."""
    graph_def = convert_to_constants.disable_lower_using_switch_merge(graph.as_graph_def())
    for function in graph_def.library.function:
        function.attr.pop("api_implements", None)  # with it, a GPU implementation might be chosen
    # Grappler does not inline functions marked for XLA, as Keras marks grouped convolutions.
    for node in (*graph_def.node, *(n for f in graph_def.library.function for n in f.node_def)):
        node.attr.pop(_MUST_COMPILE, None)
    for function in graph_def.library.function:
        function.attr.pop(_MUST_COMPILE, None)
    meta_graph = v1.train.export_meta_graph(graph_def=graph_def, graph=graph)
    meta_graph.collection_def["train_op"].node_list.value.extend([*inputs, *outputs])
    config = v1.ConfigProto()
    rewriting = config.graph_options.rewrite_options
    rewriting.min_graph_nodes = -1
    rewriting.optimizers.append("function")
    rewriting.function_optimization = rewriting.AGGRESSIVE
    return tf_optimizer.OptimizeGraph(config, meta_graph)


def _to_frozen(graph: Any, inputs: int, outputs: int) -> bytes:
    made: bytes = graph.as_graph_def(add_shapes=True).SerializeToString()
    return made


_MAKERS = {"onnxruntime": _to_onnx, "litert": _to_litert, "tensorflow": _to_frozen}


def _essence(error: Exception) -> str:
    if lacking := _LACKING.search(str(error)):
        node, is_ours, _ = (lacking["node"] or "").partition("/guard")
        types = [_TYPES[kind] + bits for kind, bits in _TYPE.findall(lacking["types"] or "")]
        given = f" of {' and '.join(dict.fromkeys(types))}".replace("int1", "bool")
        where = f" ({'for ' if is_ours else ''}{node})" if node else ""
        return f"LiteRT has no {lacking['op']}{given if types else ''}{where}"
    if found := _OP.search(str(error)):
        return f"{found[1]} {found[2]}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "error:" in line or "not supported" in line.lower()]
    return " ".join((telling or lines or [type(error).__name__])[:2])[:400]
