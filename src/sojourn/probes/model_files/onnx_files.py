"""ONNX models, read field by field: what they take and give, their ops, their weights.

A model may keep weights in files beside it. Those that are named like it belong to it for the
sandbox; a path that leads elsewhere is a danger, though ONNX Runtime refuses it too.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from pathlib import PurePosixPath

from sojourn.errors import ModelError
from sojourn.kinds.belongings import plain_file
from sojourn.probes.model_files.contents import content, naming
from sojourn.probes.model_files.ops import READS, RUNS_CODE
from sojourn.probes.model_files.summary import Finding, ModelSummary, Weight
from sojourn.probes.model_files.wire import (
    Parts,
    Value,
    fields,
    message,
    number,
    text,
    texts,
    varint,
)
from sojourn.values import Signature, TensorSpec

# fmt: off
DTYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
    8: "string", 9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64",
    14: "complex64", 15: "complex128", 16: "bfloat16", 17: "float8_e4m3fn",
    18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz", 21: "uint4", 22: "int4",
}
_BITS = {
    1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 9: 8, 10: 16, 11: 64, 12: 32, 13: 64, 14: 64,
    15: 128, 16: 16, 17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4,
}
# fmt: on
# Domains whose ops ONNX Runtime itself brings.
_KNOWN = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "com.microsoft", "com.microsoft.nchwc")
_MOST_ITEMS = 1_000_000  # nodes, weights, inputs: far above any model
_MOST_DIMENSIONS = 254
_MOST_BYTES = 1 << 62  # of one weight: what the format counts in
# After the name of the model: `.onnx.data` and `.onnx_data` are what exporters choose.
_WEIGHTS = re.compile(r"(\.onnx)?[._-](data|bin|weights|pb)([._-]?\d+)?")


@dataclass(slots=True)
class OnnxModel:
    """What is in a model."""

    producer: str = ""
    ir_version: int = 0
    opsets: dict[str, int] = field(default_factory=dict)
    inputs: dict[str, TensorSpec] = field(default_factory=dict)
    outputs: dict[str, TensorSpec] = field(default_factory=dict)
    ops: Counter[str] = field(default_factory=Counter)
    functions: set[str] = field(default_factory=set)
    weights: list[Weight] = field(default_factory=list)
    external: dict[str, None] = field(default_factory=dict)  # files that hold weights
    _count: int = 0

    def count(self) -> None:
        """One more of anything."""
        self._count += 1
        if self._count > _MOST_ITEMS:
            raise ModelError(f"more than {_MOST_ITEMS:,} nodes and weights, which no model has")


def read_onnx(path: str, known: object = None) -> ModelSummary:
    """An ONNX model."""
    model = _parsed(path)
    folder = os.path.dirname(path)
    beside = [os.path.join(folder, name) for name in model.external if _is_inside(name)]
    size = os.path.getsize(path) + sum(os.path.getsize(f) for f in beside if os.path.isfile(f))
    opsets = ", ".join(f"{name or 'opset'} {v}" for name, v in model.opsets.items())
    made = f"{model.producer or 'unknown producer'}, ONNX IR {model.ir_version}, {opsets}"
    return ModelSummary(
        path,
        "ONNX model",
        size,
        made_with=made,
        signatures={"graph": Signature(model.inputs, model.outputs)},
        ops=dict(model.ops.most_common()),
        functions=len(model.functions),
        weights=tuple(model.weights),
        weight_bytes=sum(weight.size_bytes for weight in model.weights),
        assets=tuple(model.external),
        findings=tuple(_findings(model, path)),
    )


def _parsed(path: str) -> OnnxModel:
    with naming(path, "not an ONNX model: "):
        return parse_onnx(content(path))


def files_of(path: str) -> list[str]:
    """The model and the files that hold its weights. Raises ModelError if one lies elsewhere, or
    could be anybody's: the model says what they are called, and would be given any."""
    real = os.path.realpath(path)
    found = [real]
    for name in _parsed(path).external:
        if not _is_inside(name):
            raise ModelError(f"{path} keeps weights in {name}, which is not beside it")
        if not _is_named_like(real, name):
            own = os.path.basename(real)
            raise ModelError(
                f"{path} keeps weights in {name}: of an untrusted model only files that are named "
                f"like it are read, such as {own}.data or {own}_data"
            )
        found.append(plain_file(os.path.join(os.path.dirname(real), name), "the model"))
    return found


def parse_onnx(data: memoryview) -> OnnxModel:
    """A ModelProto."""
    model = OnnxModel(" ".join(texts(data, 2, 3)).strip())
    graph, has_graph = Parts(), False
    for part, value in fields(data):
        if part == 1:
            model.ir_version = number(value)
        elif part == 7:
            has_graph = True
            graph.add(value)
        elif part == 8:
            model.count()
            domain, opset = _opset(value)
            model.opsets["" if domain == "ai.onnx" else domain] = opset
        elif part == 25:
            _function(model, value)
    if not has_graph:
        raise ModelError("it holds no graph")
    _graph(model, graph.whole())
    return model


def _graph(model: OnnxModel, data: memoryview) -> None:
    inputs: dict[str, TensorSpec] = {}
    for part, value in fields(data):
        if part in (11, 12):
            model.count()
            name, spec = _value_info(value)
            (inputs if part == 11 else model.outputs)[name] = spec
    _walk(model, [data])
    # Older models list their weights among the inputs.
    named = {weight.name for weight in model.weights}
    model.inputs = {name: spec for name, spec in inputs.items() if name not in named}


def _walk(model: OnnxModel, pending: list[memoryview]) -> None:
    """These graphs and every graph inside of their nodes, without recursion."""
    while pending:
        for part, value in fields(pending.pop()):
            if part == 1:
                pending += _node(model, value)
            elif part == 5:
                _weight(model, value)
            elif part == 15:
                _sparse_weight(model, value)


def _function(model: OnnxModel, value: Value) -> None:
    model.count()
    name, domain = texts(value, 1, 10)
    inside: list[memoryview] = []
    for part, inner in fields(message(value)):
        if part == 7:
            inside += _node(model, inner)
        elif part == 11:  # what its nodes have unless the one that calls it says otherwise
            inside += _attribute(model, inner)
    model.functions.add(_qualified(domain, name))
    _walk(model, inside)


def _node(model: OnnxModel, value: Value) -> list[memoryview]:
    """Count it; the graphs that it holds."""
    model.count()
    op, domain = texts(value, 4, 7)
    graphs: list[memoryview] = []
    for part, inner in fields(message(value)):
        if part == 5:
            graphs += _attribute(model, inner)
    model.ops[_qualified(domain, op)] += 1
    return graphs


def _attribute(model: OnnxModel, value: Value) -> list[memoryview]:
    """Count the weights in it; the graphs that it holds."""
    graphs: list[memoryview] = []
    for kind, held in fields(message(value)):
        if kind in (6, 11):  # a graph, or several: the bodies of loops and conditions
            model.count()
            graphs.append(message(held))
        elif kind in (5, 10):  # a constant
            _weight(model, held)
        elif kind in (22, 23):
            _sparse_weight(model, held)
    return graphs


def _qualified(domain: str, name: str) -> str:
    return name if domain in ("", "ai.onnx") else f"{domain}::{name}"


def _sparse_weight(model: OnnxModel, value: Value) -> None:
    """Its values, and where they are."""
    for _, tensor in (f for f in fields(message(value)) if f[0] in (1, 2)):
        _weight(model, tensor)


def _weight(model: OnnxModel, value: Value) -> None:
    model.count()
    dims: list[int] = []
    code, name, locations = 0, "", []
    for part, inner in fields(message(value)):
        if part == 1:
            dims += _numbers(inner)
            if len(dims) > _MOST_DIMENSIONS:
                raise ModelError("damaged: a shape of more than 254 dimensions")
        elif part == 2:
            code = number(inner)
        elif part == 8:
            name = text(inner)
        elif part == 13:
            model.count()
            key, said = texts(inner, 1, 2)
            if key == "location":
                locations.append(said)
    model.external |= dict.fromkeys(locations)
    size = max(0, prod(dims)) * _BITS.get(code, 0) // 8
    if size > _MOST_BYTES:
        raise ModelError(f"damaged: the weight {name!r} is larger than any disk")
    model.weights.append(Weight(name, TensorSpec(_dtype(code), tuple(dims)), size))


def _numbers(value: Value) -> list[int]:
    if isinstance(value, int):
        return [number(value)]
    found: list[int] = []
    at = 0
    while at < len(value) and len(found) <= _MOST_DIMENSIONS:
        one, at = varint(value, at)
        found.append(number(one))
    return found


def _opset(value: Value) -> tuple[str, int]:
    versions = [number(version) for part, version in fields(message(value)) if part == 2]
    return texts(value, 1)[0], versions[-1] if versions else 0


def _value_info(value: Value) -> tuple[str, TensorSpec]:
    name, types = "", Parts()
    for part, inner in fields(message(value)):
        if part == 1:
            name = text(inner)
        elif part == 2:
            types.add(inner)
    for part, inner in fields(types.whole()):
        if part == 1:
            return name, _tensor_type(message(inner))
    return name, TensorSpec("not a tensor", None)  # a sequence, a map


def _tensor_type(data: memoryview) -> TensorSpec:
    code, shape = 0, None
    for part, value in fields(data):
        if part == 1:
            code = number(value)
        elif part == 2:
            dims: list[int | None] = []
            for _, dim in (f for f in fields(message(value)) if f[0] == 1):
                size = next((number(v) for p, v in fields(message(dim)) if p == 1), None)
                dims.append(size if size is not None and size >= 0 else None)
                if len(dims) > _MOST_DIMENSIONS:
                    raise ModelError("damaged: a shape of more than 254 dimensions")
            shape = tuple(dims)
    return TensorSpec(_dtype(code), shape)


def _dtype(code: int) -> str:
    return DTYPES.get(code, f"dtype {code}")


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts


def _is_named_like(path: str, name: str) -> bool:
    stem = os.path.basename(path).removesuffix(".onnx")
    return name.startswith(stem) and _WEIGHTS.fullmatch(name, len(stem)) is not None


def _findings(model: OnnxModel, path: str) -> Iterator[Finding]:
    folder = os.path.dirname(path)
    for name in model.external:
        path_of_weights = os.path.join(folder, name)
        if not _is_inside(name):
            yield Finding("danger", READS, name, "when loading", "weights that lie elsewhere")
        elif not _is_named_like(path, name):
            detail = "weights in a file that is not named like the model"
            yield Finding("note", READS, name, "when loading", detail)
        elif os.path.islink(path_of_weights):
            yield Finding("note", "link", name, "", f"a link to {os.readlink(path_of_weights)}")
        elif not os.path.isfile(path_of_weights):
            yield Finding("note", "missing file", name, "", "it holds weights")
    for op, count in sorted(model.ops.items()):
        domain = op.rpartition("::")[0]
        if op == "com.microsoft::EPContext":
            detail = "compiled for an accelerator"
            yield Finding("danger", RUNS_CODE, op, "when run", detail, count)
        elif domain not in _KNOWN and op not in model.functions:
            yield Finding("note", "unknown op", op, "", "of a library of custom ops", count)


__all__ = ["DTYPES", "OnnxModel", "files_of", "parse_onnx", "read_onnx"]
