"""SavedModels, frozen graphs and checkpoints: graphs of TensorFlow, with their variables."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterable

from sojourn.errors import ModelError
from sojourn.probes.model_files.checkpoints import parse_index
from sojourn.probes.model_files.contents import content, naming
from sojourn.probes.model_files.graphs import parse_graph
from sojourn.probes.model_files.keras_files import keras_metadata
from sojourn.probes.model_files.meta_graphs import MetaGraph, parse_meta_graph, parse_saved_model
from sojourn.probes.model_files.ops import judge, unknown_ops
from sojourn.probes.model_files.second_forms import GRAPH, second_forms
from sojourn.probes.model_files.summary import Finding, ModelSummary, Weight
from sojourn.probes.model_files.wire import shown
from sojourn.values import Signature

_MOST_FILES = 10_000


def read_frozen(path: str, known: frozenset[str] | None) -> ModelSummary:
    """A frozen graph."""
    if path.endswith("txt"):
        raise ModelError(f"{path}: the text form of a graph is not read here; save it as .pb")
    with naming(path, "not a model: its graph is "):
        meta = MetaGraph(parse_graph(content(path)))
    if not any(node.op for node in meta.graph.every_node()):
        raise ModelError(f"{path}: not a model: no graph with nodes")
    seconds = second_forms(path, GRAPH)
    return _summary(path, "frozen graph", os.path.getsize(path), [meta], known, findings=seconds)


def read_saved_model(folder: str, known: frozenset[str] | None) -> ModelSummary:
    """The folder of a SavedModel."""
    path = os.path.join(folder, "saved_model.pb")
    if not os.path.isfile(path):
        raise ModelError(f"{path}txt is not read here; save it again as saved_model.pb")
    with naming(path):
        metas = parse_saved_model(content(path))
    if not metas:
        raise ModelError(f"{path}: damaged: it holds no graph")
    findings, size = _folder_findings(folder)
    beside = _weights(os.path.join(folder, "variables", "variables"))
    return _summary(folder, "SavedModel", size, metas, known, *beside, findings=findings)


def read_checkpoint(prefix: str, known: frozenset[str] | None) -> ModelSummary:
    """A checkpoint, with its meta graph or without."""
    metas = []
    if os.path.isfile(prefix + ".meta"):
        with naming(f"{prefix}.meta"):
            metas = [parse_meta_graph(content(f"{prefix}.meta"))]
        if not any(node.op for node in metas[0].graph.every_node()):
            raise ModelError(f"{prefix}.meta: not a model: no graph with nodes")
        metas[0].assets.clear()  # they are not fed where a checkpoint is opened
    weights, unchecked, unread = _weights(prefix)
    if not metas and not os.path.isfile(prefix + ".index"):
        raise ModelError(f"{prefix}: not a checkpoint: it has neither .index nor .meta")
    if not metas:
        unchecked = (*unchecked, "ops: the checkpoint has no .meta file with a graph")
    files = [prefix + ".index", prefix + ".meta", *_shards(prefix)]
    size = sum(os.path.getsize(file) for file in files if os.path.isfile(file))
    return _summary(prefix, "checkpoint", size, metas, known, weights, unchecked, unread)


def _summary(
    path: str,
    kind: str,
    size: int,
    metas: list[MetaGraph],
    known: frozenset[str] | None,
    weights: tuple[Weight, ...] = (),
    unchecked: tuple[str, ...] = (),
    unread: tuple[str, ...] = (),
    findings: Iterable[Finding] = (),
) -> ModelSummary:
    ops: Counter[str] = Counter()
    signatures: dict[str, Signature] = {}
    found: dict[Finding, None] = dict.fromkeys(findings)
    for meta in metas:
        own = Counter(shown(node.op) for node in meta.graph.every_node())
        ops += own
        # Several graphs in one SavedModel are told apart by their tags.
        prefix = f"{'+'.join(meta.tags)}/" if len(metas) > 1 else ""
        signatures |= {prefix + shown(name): spec for name, spec in meta.signatures.items()}
        found |= dict.fromkeys(judge(meta))
        if known is not None:
            found |= dict.fromkeys(unknown_ops(meta, known, own))
    if known is None and metas:
        unchecked = (*unchecked, "unknown ops: not asked for")
    version = next((meta.version for meta in metas if meta.version), "")
    return ModelSummary(
        path,
        kind,
        size,
        made_with=f"TensorFlow {version}" if version else "",
        tags=tuple("+".join(meta.tags) for meta in metas if meta.tags),
        signatures=signatures,
        ops=dict(ops.most_common()),
        functions=sum(len(meta.graph.functions) for meta in metas),
        weights=weights,
        weight_bytes=sum(weight.size_bytes for weight in weights),
        assets=tuple(dict.fromkeys(asset.filename for meta in metas for asset in meta.assets)),
        findings=tuple(sorted(found, key=lambda f: (f.severity, f.what, f.name, f.where))),
        unchecked=unchecked,
        unread=unread,
    )


def _weights(prefix: str) -> tuple[tuple[Weight, ...], tuple[str, ...], tuple[str, ...]]:
    """The variables beside a graph, what is wrong with them, and what could not be read.

    A model may have none.
    """
    if not os.path.isfile(prefix + ".index"):
        return (), (), ()
    try:
        weights = parse_index(content(prefix + ".index"))
    except ModelError as error:
        return (), (), (f"weights: {prefix}.index: {error}",)
    stored = sum(os.path.getsize(shard) for shard in _shards(prefix))
    needed = sum(weight.size_bytes for weight in weights)
    if stored < needed:
        return weights, (f"weights: incomplete: {stored} of {needed} bytes are there",), ()
    return weights, (), ()


def _shards(prefix: str) -> list[str]:
    return glob.glob(glob.escape(prefix) + ".data-?????-of-?????")


def _folder_findings(folder: str) -> tuple[list[Finding], int]:
    """What its files tell beside the graph, and their size. Links are named, not followed."""
    findings, size, seen = [], 0, 0
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(root, name)
            seen += 1
            if seen > _MOST_FILES:
                raise ModelError(f"{folder}: not a model: more than {_MOST_FILES} files")
            if os.path.islink(path):
                detail = f"a link to {os.readlink(path)}"
                findings.append(Finding("note", "link", os.path.relpath(path, folder), "", detail))
            elif name in files:
                size += os.lstat(path).st_size
    metadata = os.path.join(folder, "keras_metadata.pb")
    if os.path.isfile(metadata):
        findings += keras_metadata(content(metadata))
    return findings, size
