"""Meta graphs: a graph with what a saver wrote beside it, and SavedModels, which hold some."""

from __future__ import annotations

from dataclasses import dataclass, field

from sojourn.errors import ModelError
from sojourn.probes.model_files.graphs import Graph
from sojourn.probes.model_files.tensor_specs import dtype_name, parse_shape
from sojourn.probes.model_files.wire import Value, entry, fields, message, number, raw, shown, text
from sojourn.values import Signature, TensorSpec

_MOST_GRAPHS = 64
_MOST_NAMES = 1_000_000  # of signatures, tensors, tags and assets together
# What runs while a model is being loaded: how TensorFlow 1 names it in a SavedModel, and the
# tables, which are filled when a meta graph is opened with its checkpoint.
_RUN_WHEN_LOADING = (b"saved_model_main_op", b"legacy_init_op", b"table_initializer")


@dataclass(slots=True)
class Asset:
    """A file beside the model, and the tensor that its path is fed to."""

    filename: str = ""
    tensor: bytes = b""


@dataclass(slots=True)
class MetaGraph:
    """A graph with what a saver wrote beside it."""

    graph: Graph = field(default_factory=Graph)
    tags: list[str] = field(default_factory=list)
    version: str = ""
    signatures: dict[bytes, Signature] = field(default_factory=dict)
    signature_tensors: dict[bytes, list[bytes]] = field(default_factory=dict)
    # Inputs and outputs by the tensors they stand for, as far as each is a single one.
    signature_names: dict[bytes, tuple[dict[str, str], dict[str, str]]] = field(
        default_factory=dict
    )
    signature_methods: dict[bytes, str] = field(default_factory=dict)
    init_ops: list[bytes] = field(default_factory=list)
    restore_ops: list[bytes] = field(default_factory=list)  # run by every saver when loading
    save_ops: list[bytes] = field(default_factory=list)
    filename_tensor: bytes = b""  # to which a saver feeds the path of the checkpoint
    assets: list[Asset] = field(default_factory=list)
    name_count: int = 0

    def count(self) -> None:
        """Called before something is kept, so that a hostile file cannot fill the memory."""
        self.name_count += 1
        if self.name_count > _MOST_NAMES:
            raise ModelError(f"more than {_MOST_NAMES:,} names, which no honest model has")


def parse_saved_model(data: memoryview, *, with_graph: bool = True) -> list[MetaGraph]:
    """A SavedModel: one meta graph or more. Without the graphs themselves it is quick."""
    graphs: list[memoryview] = []
    for part, value in fields(data):
        if part == 2:
            graphs.append(message(value))
            if len(graphs) > _MOST_GRAPHS:
                raise ModelError(f"damaged: it claims to hold more than {_MOST_GRAPHS} graphs")
    return [parse_meta_graph(graph, with_graph=with_graph) for graph in graphs]


def parse_meta_graph(data: memoryview, *, with_graph: bool = True) -> MetaGraph:
    """A MetaGraphDef. A part that comes twice is read twice, as protobuf merges both."""
    meta = MetaGraph()
    collected: list[Asset] = []
    for part, value in fields(data):
        if part == 1:
            _meta_info(meta, value)
        elif part == 2 and with_graph:
            meta.graph.read(message(value))
        elif part == 3:
            _saver(meta, value)
        elif part == 4:
            name, content = entry(value)
            if name == b"saved_model_assets":
                collected = _collected_assets(meta, content)
            else:
                _collection(meta, name, content)
        elif part == 5:
            name, content = entry(value)
            _signature(meta, name, content)
        elif part == 6:
            meta.assets.append(_asset(meta, message(value)))
    # As the loader does: nothing is fed for the older form where there is the newer.
    meta.assets = meta.assets or collected
    return meta


def _meta_info(meta: MetaGraph, value: Value) -> None:
    for part, content in fields(message(value)):
        if part == 4:
            meta.count()
            meta.tags.append(text(content))
        elif part == 5:
            meta.version = text(content)


def _saver(meta: MetaGraph, value: Value) -> None:
    for part, content in fields(message(value)):
        if part == 1:
            meta.filename_tensor = raw(content)
        elif part in (2, 3):
            meta.count()
            (meta.save_ops if part == 2 else meta.restore_ops).append(raw(content))


def _collection(meta: MetaGraph, name: bytes, content: memoryview) -> None:
    for part, value in fields(content):
        if part == 1 and name in _RUN_WHEN_LOADING:
            for inner, node in fields(message(value)):
                if inner == 1:
                    meta.count()
                    meta.init_ops.append(raw(node))


def _collected_assets(meta: MetaGraph, content: memoryview) -> list[Asset]:
    found: list[Asset] = []
    for part, value in fields(content):
        if part != 5:  # another kind of collection, which takes the place of this one
            found = []
            continue
        for wrapped in (message(v) for p, v in fields(message(value)) if p == 1):
            last = None
            for inner, asset in fields(wrapped):
                if inner == 2:
                    last = message(asset)
            if last is not None:
                found.append(_asset(meta, last))
    return found


def _asset(meta: MetaGraph, content: memoryview) -> Asset:
    meta.count()
    asset = Asset()
    for part, value in fields(content):
        if part == 1:
            # Of what stands here twice, the last counts; what is no plain tensor is not fed.
            for inner, name in fields(message(value)):
                if inner in (1, 4, 5):
                    asset.tensor = raw(name) if inner == 1 else b""
        elif part == 2:
            asset.filename = text(value)
    return asset


def _signature(meta: MetaGraph, name: bytes, content: memoryview) -> None:
    meta.count()
    sides: dict[int, dict[str, TensorSpec]] = {1: {}, 2: {}}
    tensors: dict[int, list[bytes]] = {1: [], 2: []}
    single: dict[int, dict[str, str]] = {1: {}, 2: {}}
    method = ""
    for part, value in fields(content):
        if part == 3:
            method = text(value)
        elif part in sides:
            key, info = entry(value)
            sides[part][shown(key)], names = _tensor(meta, info)
            tensors[part] += names
            if len(names) == 1:
                single[part][shown(key)] = shown(names[0])
    # How TensorFlow 2 names it. It is not a signature to call.
    if name == b"__saved_model_init_op":
        meta.init_ops += tensors[2]
    elif name != b"__saved_model_train_op":
        meta.signatures[name] = Signature(sides[1], sides[2])
        meta.signature_names[name] = single[1], single[2]
        meta.signature_methods[name] = method
        meta.signature_tensors.setdefault(name, []).extend(tensors[2])


def _tensor(meta: MetaGraph, info: memoryview) -> tuple[TensorSpec, list[bytes]]:
    """A TensorInfo: its own dtype and shape, and the tensors it stands for."""
    dtype, shape, names = "unknown", None, []
    pending = [info]
    while pending:
        content = pending.pop()
        for part, value in fields(content):
            meta.count()
            if part == 1:
                names.append(raw(value))
            elif part == 2 and content is info:
                dtype = dtype_name(number(value))
            elif part == 3 and content is info:
                shape = parse_shape(message(value))
            elif part == 4:  # sparse: three tensors
                for inner, name in fields(message(value)):
                    if inner in (1, 2, 3):
                        meta.count()
                        names.append(raw(name))
            elif part == 5:  # ragged and others: made of tensors, which may be made of more
                for inner, component in fields(message(value)):
                    if inner == 2:
                        meta.count()
                        pending.append(message(component))
    return TensorSpec(dtype, shape), names
