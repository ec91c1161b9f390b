"""TensorFlow Lite models: what their signatures take and give, their ops, their weights."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from sojourn.errors import ModelError
from sojourn.probes.model_files.contents import content, naming
from sojourn.probes.model_files.flat import Table, root
from sojourn.probes.model_files.ops import HARMLESS, judgement
from sojourn.probes.model_files.summary import Finding, ModelSummary, Weight
from sojourn.probes.model_files.tflite_ops import BUILTIN, CUSTOM, STATEFUL
from sojourn.values import Signature, TensorSpec

_DTYPES = (
    "float32 float16 int32 uint8 int64 string bool int16 complex64 int8 float64 complex128 uint64 "
    "resource variant uint32 uint16 int4 bfloat16 int2 uint4 float8_e4m3fn float8_e5m2"
).split()
_MOST_ITEMS = 1_000_000  # ops, tensors, dimensions, names: far above any model
_ITEM_BYTES = 64  # of a name, so that many references to a long one count for what they take
_MOST_DIMENSIONS = 254


@dataclass(slots=True)
class TfLiteModel:
    """What is in a model."""

    description: str = ""
    signatures: dict[str, Signature] = field(default_factory=dict)
    ops: Counter[str] = field(default_factory=Counter)
    custom: set[str] = field(default_factory=set)
    weights: list[Weight] = field(default_factory=list)
    remembers: bool = False  # whether a run depends on those before it
    _count: int = 0

    def count(self, items: int = 1) -> None:
        """So many more of anything."""
        self._count += items
        if self._count > _MOST_ITEMS:
            raise ModelError(f"more than {_MOST_ITEMS:,} ops and tensors, which no model has")

    def name(self, table: Table, place: int) -> str:
        """One that the file gives."""
        found = table.text(place)
        self.count(1 + len(found) // _ITEM_BYTES)
        return found

    def numbers(self, table: Table, place: int) -> tuple[int, ...]:
        """Those of a list, counted before they are read."""
        self.count(table.length(place))
        return table.numbers(place) or ()


@dataclass(slots=True)
class _Tensor:
    name: str
    spec: TensorSpec
    buffer: int


def read_tflite(path: str, known: object = None) -> ModelSummary:
    """A TensorFlow Lite model."""
    with naming(path, "not a TensorFlow Lite model: "):
        model = parse_tflite(content(path))
    return ModelSummary(
        path,
        "TensorFlow Lite model",
        os.path.getsize(path),
        made_with=model.description,
        signatures=model.signatures,
        ops=dict(model.ops.most_common()),
        weights=tuple(model.weights),
        weight_bytes=sum(weight.size_bytes for weight in model.weights),
        findings=tuple(_findings(model)),
    )


def parse_tflite(data: memoryview) -> TfLiteModel:
    """A model in a flatbuffer."""
    top = root(data, b"TFL3")
    model = TfLiteModel(top.text(3))
    codes = list(_op_names(model, top))
    sizes = [_buffer_bytes(model, buffer) for buffer in top.tables(4)]
    graphs = []
    for graph in top.tables(2):
        model.count()
        graphs.append((graph, _tensors(model, graph, sizes)))
        for operator in graph.tables(3):
            model.count()
            index = operator.number(0, "<I")
            model.ops[codes[index] if index < len(codes) else f"op {index}"] += 1
    if not graphs:
        raise ModelError("it holds no graph")
    model.remembers = model.remembers or not STATEFUL.isdisjoint(model.ops)
    for signature in top.tables(7):
        model.count()
        index = signature.number(4, "<I")
        tensors = graphs[index][1] if index < len(graphs) else []
        model.signatures[model.name(signature, 2)] = Signature(
            _mapped(model, signature.tables(0), tensors),
            _mapped(model, signature.tables(1), tensors),
        )
    if not model.signatures:
        graph, tensors = graphs[0]
        model.signatures["graph"] = Signature(
            _listed(model.numbers(graph, 1), tensors), _listed(model.numbers(graph, 2), tensors)
        )
    return model


def _op_names(model: TfLiteModel, top: Table) -> Iterator[str]:
    for code in top.tables(1):
        model.count()
        # Files made before there were more than 127 have the number in a byte.
        number = max(code.number(0, "<b"), code.number(3, "<i"))
        if number == CUSTOM:
            name = model.name(code, 1)
            model.custom.add(name)
            yield name
        else:
            yield BUILTIN[number] if 0 <= number < len(BUILTIN) else f"op {number}"


def _buffer_bytes(model: TfLiteModel, buffer: Table) -> int:
    model.count()
    return buffer.length(0) or buffer.number(2, "<Q")  # inside, or behind the flatbuffer


def _tensors(model: TfLiteModel, graph: Table, sizes: list[int]) -> list[_Tensor]:
    found = []
    for tensor in graph.tables(0):
        model.count()
        code, buffer = tensor.number(1, "<b"), tensor.number(2, "<I")
        dtype = _DTYPES[code] if 0 <= code < len(_DTYPES) else f"dtype {code}"
        one = _Tensor(model.name(tensor, 3), TensorSpec(dtype, _shape(model, tensor)), buffer)
        found.append(one)
        size = sizes[buffer] if 0 < buffer < len(sizes) else 0
        if size:
            model.weights.append(Weight(one.name, one.spec, size))
        model.remembers = model.remembers or bool(tensor.number(5, "<B"))
    return found


def _shape(model: TfLiteModel, tensor: Table) -> tuple[int | None, ...]:
    place = 7 if tensor.length(7) else 0
    if tensor.length(place) > _MOST_DIMENSIONS:
        raise ModelError("damaged: a shape of more than 254 dimensions")
    return tuple(dim if dim >= 0 else None for dim in model.numbers(tensor, place))


def _mapped(
    model: TfLiteModel, entries: Iterator[Table], tensors: list[_Tensor]
) -> dict[str, TensorSpec]:
    found = {}
    for entry in entries:
        model.count()
        index = entry.number(1, "<I")
        if index >= len(tensors):
            raise ModelError("damaged: a signature names a tensor that is not there")
        found[model.name(entry, 0)] = tensors[index].spec
    return found


def _listed(indices: tuple[int, ...], tensors: list[_Tensor]) -> dict[str, TensorSpec]:
    return {tensors[i].name: tensors[i].spec for i in indices if 0 <= i < len(tensors)}


def _findings(model: TfLiteModel) -> Iterator[Finding]:
    for name in sorted(model.custom):
        is_tensorflows = name.startswith("Flex")
        detail = "of TensorFlow, which LiteRT does not run" if is_tensorflows else "a custom op"
        what = judgement(name.removeprefix("Flex")) if is_tensorflows else None
        count = model.ops[name] or 1
        if what in (None, HARMLESS):
            yield Finding("note", "unknown op", name, "", detail, count)
        else:  # other programs do
            yield Finding("danger", what, name, "when run", detail, count)


__all__ = ["TfLiteModel", "parse_tflite", "read_tflite"]
