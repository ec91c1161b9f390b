"""What a model file contains, found by reading it: nothing is loaded, no TensorFlow is needed.

`inspect_model` is the one way in. A file that cannot be read is a `ModelError` that says why.
"""

from __future__ import annotations

import glob
import os
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from sojourn.errors import ModelError
from sojourn.probes.model_files.checkpoints import parse_index
from sojourn.probes.model_files.graphs import parse_graph
from sojourn.probes.model_files.keras_files import inspect_hdf5, inspect_keras, keras_metadata
from sojourn.probes.model_files.meta_graphs import MetaGraph, parse_meta_graph, parse_saved_model
from sojourn.probes.model_files.ops import judge, known_ops, unknown_ops
from sojourn.probes.model_files.summary import Finding, ModelSummary, Weight
from sojourn.probes.model_files.wire import shown
from sojourn.probes.model_paths import HDF5, chosen_checkpoint
from sojourn.values import Signature

_LARGEST_MESSAGE = 2 << 30  # of protobuf itself
_MOST_FILES = 10_000


_NEITHER = "neither a frozen graph (.pb) nor a Keras archive (.keras) nor an HDF5 file (.h5)"


def inspect_model(path: str | os.PathLike[str], check_ops: bool = True) -> ModelSummary:
    """What the model at `path` contains.

    `check_ops` names the ops that TensorFlow is not known to have. The summary keeps no file open.
    """
    path = os.fspath(path)
    known = known_ops() if check_ops else None
    try:
        if os.path.isdir(path):
            return _inspect_folder(path, known)
        if os.path.isfile(path):
            return _inspect_file(path, known)
        if os.path.isfile(path + ".meta") or os.path.isfile(path + ".index"):
            return _inspect_checkpoint(path, known)
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror or error}") from error
    if os.path.exists(path):
        raise ModelError(f"{path}: neither a file nor a folder")
    raise ModelError(f"{path}: no such file or folder")


def _inspect_folder(path: str, known: frozenset[str] | None) -> ModelSummary:
    if os.path.isfile(os.path.join(path, "saved_model.pb")):
        return _inspect_saved_model(path, known)
    for name in ("saved_model.pbtxt", "saved_model.cpb"):
        if os.path.isfile(os.path.join(path, name)):
            raise ModelError(f"{path}: {name} is not read here; save it again as saved_model.pb")
    # A checkpoint that `open` takes has a graph; variables alone are worth a look, too.
    prefix = chosen_checkpoint(path, ".meta") or chosen_checkpoint(path, ".index")
    if prefix is not None:
        return _inspect_checkpoint(prefix, known)
    if any(name.endswith((".meta", ".index")) for name in os.listdir(path)):
        raise ModelError(f"{path}: several checkpoints, and nothing says which; name one of them")
    raise ModelError(f"{path}: not a model: it has no saved_model.pb and no checkpoint")


def _inspect_file(path: str, known: frozenset[str] | None) -> ModelSummary:
    folder, name = os.path.split(path)
    if name == "saved_model.pb":
        return _inspect_saved_model(folder or ".", known)
    if name.endswith((".meta", ".index")):
        return _inspect_checkpoint(path.rsplit(".", 1)[0], known)
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        start = file.read(8)
    form = _form(path, start)
    if form == "text":
        raise ModelError(f"{path}: the text form of a graph is not read here; save it as .pb")
    if form == "archive":
        summary = inspect_keras(path, size)
    elif form == "HDF5":
        summary = inspect_hdf5(path, size)
    else:
        summary = _inspect_frozen(path, size, known)
    return replace(summary, findings=(*_second_forms(path, start, form), *summary.findings))


def _form(path: str, start: bytes) -> str:
    """What it is loaded as. Its name decides before its content, as for those who load it."""
    if path.endswith(".keras"):  # Keras looks for an archive at the end, and only then for HDF5
        is_archive = zipfile.is_zipfile(path) or start != HDF5
        return "archive" if is_archive else "HDF5"
    if path.endswith((".h5", ".hdf5")):
        return "HDF5"
    if path.endswith((".pb", ".pbtxt")):
        return "text" if path.endswith("txt") else "graph"
    if start == HDF5:
        return "HDF5"
    return "archive" if start.startswith(b"PK") else "graph"


def _second_forms(path: str, start: bytes, form: str) -> Iterator[Finding]:
    """A file can be read in two ways at once, and then shows each reader another model."""
    others = []
    if start == HDF5 and form != "HDF5":
        others.append("begins as HDF5")
    elif form == "archive" and not start.startswith(b"PK"):
        others.append("has something before it")
    elif form == "graph" and start.startswith(b"PK\3\4"):
        others.append("begins as an archive")
    if form != "archive" and zipfile.is_zipfile(path):
        others.append("ends as an archive")
    for other in others:
        detail = f"loaded as {form}, but {other}"
        yield Finding("danger", "two files in one", os.path.basename(path), "", detail)


def _inspect_frozen(path: str, size: int, known: frozenset[str] | None) -> ModelSummary:
    try:
        meta = MetaGraph(parse_graph(_content(path)))
    except ModelError as error:
        raise ModelError(f"{path}: not a model: {_NEITHER} ({error})") from error
    if not any(node.op for node in meta.graph.every_node()):
        raise ModelError(f"{path}: not a model: {_NEITHER}")
    return _summary(path, "frozen graph", size, [meta], known)


def _inspect_saved_model(folder: str, known: frozenset[str] | None) -> ModelSummary:
    path = os.path.join(folder, "saved_model.pb")
    try:
        metas = parse_saved_model(_content(path))
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
    if not metas:
        raise ModelError(f"{path}: damaged: it holds no graph")
    findings, size = _folder_findings(folder)
    weights, unchecked, unread = _weights(os.path.join(folder, "variables", "variables"))
    summary = _summary(folder, "SavedModel", size, metas, known, weights, findings, unchecked)
    return replace(summary, unread=unread)


def _inspect_checkpoint(prefix: str, known: frozenset[str] | None) -> ModelSummary:
    metas = []
    if os.path.isfile(prefix + ".meta"):
        try:
            metas = [parse_meta_graph(_content(prefix + ".meta"))]
        except ModelError as error:
            raise ModelError(f"{prefix}.meta: {error}") from error
        metas[0].assets.clear()  # nobody feeds them where a checkpoint is opened
    weights, unchecked, unread = _weights(prefix)
    if not metas and not os.path.isfile(prefix + ".index"):
        raise ModelError(f"{prefix}: not a checkpoint: it has neither .index nor .meta")
    if not metas:
        unchecked = (*unchecked, "ops: the checkpoint has no .meta file with a graph")
    files = [prefix + ".index", prefix + ".meta", *_shards(prefix)]
    size = sum(os.path.getsize(file) for file in files if os.path.isfile(file))
    summary = _summary(prefix, "checkpoint", size, metas, known, weights, (), unchecked)
    return replace(summary, unread=unread)


def _summary(
    path: str,
    kind: str,
    size: int,
    metas: list[MetaGraph],
    known: frozenset[str] | None,
    weights: tuple[Weight, ...] = (),
    findings: Iterable[Finding] = (),
    unchecked: tuple[str, ...] = (),
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
    )


def _weights(prefix: str) -> tuple[tuple[Weight, ...], tuple[str, ...], tuple[str, ...]]:
    """The variables beside a graph, what is wrong with them, and what could not be read.

    A model may have none.
    """
    if not os.path.isfile(prefix + ".index"):
        return (), (), ()
    try:
        weights = parse_index(_content(prefix + ".index"))
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
        findings += keras_metadata(_content(metadata))
    return findings, size


def _content(path: str) -> memoryview:
    """The whole file. Read, not mapped: a map of a file that shrinks would end this process."""
    if os.path.getsize(path) > _LARGEST_MESSAGE:
        raise ModelError("damaged: larger than the 2 GiB that protobuf allows")
    with open(path, "rb") as file:
        return memoryview(file.read(_LARGEST_MESSAGE))


__all__ = ["Finding", "ModelSummary", "Weight", "inspect_model"]
