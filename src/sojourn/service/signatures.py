"""The signatures of a model: read from its files if they contain them, else from an open session.

One worker serves every signature of a SavedModel: it loads the whole graph, so tensors of other
signatures can be fed and fetched by name.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from sojourn.errors import ModelError
from sojourn.kinds.paths import Found, recognise
from sojourn.probes.model_files import inspect_model
from sojourn.probes.model_files.contents import content
from sojourn.probes.model_files.meta_graphs import MetaGraph, parse_saved_model
from sojourn.probes.model_files.wire import shown
from sojourn.values import Signature, TensorSpec

DEFAULT = "serving_default"
PREDICT = "tensorflow/serving/predict"

_PLATFORMS = {
    "savedmodel": "tensorflow_savedmodel",
    "frozen": "tensorflow_graphdef",
    "metagraph": "tensorflow_metagraph",
    "keras": "tensorflow_keras",
    "onnx": "onnxruntime_onnx",
    "tflite": "litert_tflite",
}


@dataclass(frozen=True, slots=True)
class CallSignature:
    """One signature as clients call it, and the names of its tensors for `session.run`."""

    name: str
    spec: Signature
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    # Reported to clients: the method, and the graph's tensors if the file names them.
    method: str = PREDICT
    input_tensors: Mapping[str, str] = field(default_factory=dict)
    output_tensors: Mapping[str, str] = field(default_factory=dict)


def platform_of(path: str) -> str:
    """Return the platform name that clients are told."""
    try:
        return _PLATFORMS.get(recognise(path).kind.name, "")
    except (ModelError, OSError):
        return ""


def is_quickly_read(path: str) -> bool:
    """Whether reading the signatures is fast regardless of the model's size."""
    return recognise(path).kind.name == "savedmodel"


def read_signatures(
    path: str, wanted: str | None = None, tags: Collection[str] | None = None
) -> dict[str, CallSignature]:
    """Read the signatures in the files at `path`, the opened one first; empty if they contain none.

    `wanted` and `tags` select as they do when a model is opened.
    """
    found = recognise(path)
    if found.kind.name == "savedmodel":
        return _of_saved_model(found, wanted, tags)
    known = inspect_model(path, check_ops=False).signatures
    whole = {name: spec for name, spec in known.items() if spec.outputs}
    if found.kind.name not in ("onnx", "tflite"):
        return {}
    if list(whole) == ["graph"]:  # it has no signatures, only the whole graph
        whole = {DEFAULT: whole["graph"]}
    name = opened_name(whole, wanted)
    # The worker has only this signature; another one would need a separate worker.
    return {} if name is None else {name: plain(name, whole[name])}


def opened_name(names: Collection[str], wanted: str | None) -> str | None:
    """Return the signature that is opened: the wanted one, the default, or the first."""
    if wanted is not None:
        return wanted if wanted in names else None
    return DEFAULT if DEFAULT in names else min(names, default=None)


def plain(name: str, spec: Signature) -> CallSignature:
    """Return a signature whose tensors have the names that clients use."""
    return CallSignature(name, spec, {n: n for n in spec.inputs}, {n: n for n in spec.outputs})


def _of_saved_model(
    found: Found, wanted: str | None, tags: Collection[str] | None
) -> dict[str, CallSignature]:
    path = os.path.join(found.path, "saved_model.pb")
    if not os.path.isfile(path):
        return {}  # the model is in the text format
    meta = _tagged(parse_saved_model(content(path), with_graph=False), tags)
    if meta is None:
        return {}
    read = {}
    for raw, spec in meta.signatures.items():
        inputs, outputs = meta.signature_names[raw]
        # Sparse and ragged tensors consist of several tensors: only a session knows their names.
        if inputs.keys() == spec.inputs.keys() and outputs.keys() == spec.outputs.keys():
            sorted_spec = Signature(_sorted(spec.inputs), _sorted(spec.outputs))
            method = meta.signature_methods[raw] or PREDICT
            read[shown(raw)] = CallSignature(
                shown(raw), sorted_spec, inputs, outputs, method, inputs, outputs
            )
    opened = opened_name([shown(raw) for raw in meta.signatures], wanted)
    if opened not in read:
        return {}
    saved = read.pop(opened)
    known = plain(opened, saved.spec)  # the worker uses the names that clients use
    first = replace(saved, inputs=known.inputs, outputs=known.outputs)
    return {opened: first, **read}


def _sorted(specs: Mapping[str, TensorSpec]) -> dict[str, TensorSpec]:
    return {name: specs[name] for name in sorted(specs)}


def _tagged(metas: list[MetaGraph], tags: Collection[str] | None) -> MetaGraph | None:
    """Return the graph that the engine would open."""
    if tags is None and len(metas) == 1:
        return metas[0]
    wanted = set(tags or ("serve",))
    return next((meta for meta in metas if set(meta.tags) == wanted), None)
