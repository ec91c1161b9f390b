"""Keras files: the `.keras` archive and the older HDF5. Their configuration is read, not obeyed."""

from __future__ import annotations

import importlib
import json
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from sojourn.errors import ModelError
from sojourn.probes.model_files.ops import READS, RUNS_CODE
from sojourn.probes.model_files.summary import Finding, ModelSummary, Weight
from sojourn.values import Signature, TensorSpec

_LARGEST_CONFIG = 16 << 20
_OWN_MODULES = ("keras", "tf_keras", "tensorflow", "keras_hub", "keras_nlp", "keras_cv")
_READS_VOCABULARY = ("StringLookup", "IntegerLookup", "TextVectorization")


@dataclass(slots=True)
class _Config:
    layers: Counter[str] = field(default_factory=Counter)
    inputs: dict[str, TensorSpec] = field(default_factory=dict)
    findings: Counter[Finding] = field(default_factory=Counter)

    def counted(self) -> tuple[Finding, ...]:
        return tuple(
            Finding(f.severity, f.what, f.name, f.where, f.detail, count)
            for f, count in self.findings.items()
        )


def inspect_keras(path: str, size: int) -> ModelSummary:
    """A `.keras` archive. Nothing is unpacked but its two small descriptions."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            config = _member(archive, "config.json")
            metadata = _member(archive, "metadata.json")
    except (ModelError, OSError) as error:
        raise ModelError(f"{path}: {error}") from error
    except Exception as error:
        # zipfile reports damage by a dozen types, of its own and of its decompressors.
        raise ModelError(f"{path}: damaged: not a readable archive ({error})") from error
    if config is None:
        raise ModelError(f"{path}: not a Keras file: it has no config.json")
    found = _walk(_json(config, path))
    findings = list(found.counted())
    for member in members:
        name = PurePosixPath(member.filename)
        if name.is_absolute() or ".." in name.parts:
            findings.append(
                Finding("danger", "writes files", member.filename, "when unpacked", "leads outside")
            )
    about = _json(metadata, path) if metadata else {}
    version = about.get("keras_version") if isinstance(about, dict) else None
    return ModelSummary(
        path,
        "Keras file",
        size,
        made_with=f"Keras {version}" if isinstance(version, str) else "",
        signatures={"inputs": Signature(found.inputs)} if found.inputs else {},
        layers=dict(found.layers.most_common()),
        weight_bytes=sum(m.file_size for m in members if m.filename.endswith(".h5")),
        assets=tuple(m.filename for m in members if m.filename.startswith("assets/")),
        findings=tuple(findings),
    )


def _member(archive: zipfile.ZipFile, name: str) -> bytes | None:
    if name not in archive.namelist():
        return None
    with archive.open(name) as file:
        # Not the size that it claims to have: an archive can unpack to a million times itself.
        content = file.read(_LARGEST_CONFIG + 1)
    if len(content) > _LARGEST_CONFIG:
        raise ModelError(f"its {name} is larger than {_LARGEST_CONFIG >> 20} MiB")
    return content


def inspect_hdf5(path: str, size: int) -> ModelSummary:
    """A Keras HDF5 file, as far as h5py is installed to look into it."""
    try:
        h5py: Any = importlib.import_module("h5py")
    except ImportError:
        reason = "its content: h5py, which reads HDF5, is not installed"
        return ModelSummary(path, "Keras HDF5 file", size, unchecked=(reason,))
    weights: list[Weight] = []
    findings: list[Finding] = []

    def look(name: str, link: Any) -> None:
        if isinstance(link, h5py.ExternalLink):
            detail = f"leads to {link.filename}"
            findings.append(Finding("danger", READS, name, detail=detail))

    def measure(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            if item.external:
                detail = f"its data is in {item.external[0][0]}"
                findings.append(Finding("danger", READS, name, detail=detail))
            spec = TensorSpec(str(item.dtype), tuple(item.shape or ()))
            weights.append(Weight(name, spec, int(item.size or 0) * item.dtype.itemsize))

    try:
        with h5py.File(path, "r") as file:
            raw = file.attrs.get("model_config")
            version = file.attrs.get("keras_version", b"")
            file.visititems_links(look)
            file.visititems(measure)
    except Exception as error:
        # HDF5 reports damage as OSError, RuntimeError, KeyError, ValueError and more.
        raise ModelError(f"{path}: damaged: not a readable HDF5 file ({error})") from error
    found = _walk(_json(_bytes(raw), path)) if raw is not None else _Config()
    text = _bytes(version).decode("utf-8", "replace")
    return ModelSummary(
        path,
        "Keras HDF5 file",
        size,
        made_with=f"Keras {text}" if text else "",
        signatures={"inputs": Signature(found.inputs)} if found.inputs else {},
        layers=dict(found.layers.most_common()),
        weights=tuple(weights),
        weight_bytes=sum(weight.size_bytes for weight in weights),
        findings=(*found.counted(), *findings),
        unchecked=() if raw is not None else ("its layers: it holds weights only",),
    )


def _bytes(value: Any) -> bytes:
    return value.encode("utf-8", "replace") if isinstance(value, str) else bytes(value)


def _json(content: bytes, path: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: damaged: its configuration is not JSON ({error})") from error


def _walk(config: Any) -> _Config:
    """Look at every object of a configuration. A loop, as it may be nested without end."""
    found = _Config()
    pending: list[tuple[str, Any]] = [("layer", config)]
    while pending:
        key, value = pending.pop()
        if isinstance(value, list):
            pending += [(key, item) for item in reversed(value)]
        elif isinstance(value, dict):
            if isinstance(value.get("class_name"), str):
                is_layer = key in ("layer", "layers")
                _look_at(found, value["class_name"], value, is_layer)
            pending += reversed(value.items())
    return found


def _look_at(found: _Config, name: str, value: Mapping[str, Any], is_layer: bool) -> None:
    inner = value.get("config")
    config: Mapping[str, Any] = inner if isinstance(inner, dict) else {}
    if is_layer:
        found.layers[name[:200]] += 1
        if name == "InputLayer":
            _note_input(found, config)
    for finding in _judge(name, value, config):
        found.findings[finding] += 1


def _judge(name: str, value: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[Finding]:
    module, registered = value.get("module"), value.get("registered_name")
    registered = registered if isinstance(registered, str) else ""
    if name in ("Lambda", "__lambda__"):
        yield Finding("danger", RUNS_CODE, name, detail="Python code stored in the model")
    elif isinstance(module, str) and module == "builtins":
        named = value.get("config")
        detail = f"a function that you must supply: {named}" if isinstance(named, str) else ""
        yield Finding("note", "custom object", name, detail=detail[:200])
    elif isinstance(module, str) and module.split(".", 1)[0] not in _OWN_MODULES:
        # Also where a name is registered: Keras imports the module when it knows no such name.
        registration = f", registered as {registered}" if registered else ""
        detail = f"imports {module}{registration}"[:200]
        yield Finding("danger", "custom object", name, detail=detail)
    elif isinstance(module, str) and ".utils" in module:
        # Helpers that download and unpack files were used as layers by attackers.
        yield Finding("danger", RUNS_CODE, name, detail=f"a helper of {module[:200]}")
    elif module is None and ">" in (known_as := registered or name):
        # HDF5 files name no module at all: the class is the registered name.
        detail = f"a class that you must supply: {known_as[:200]}"
        yield Finding("note", "custom object", name[:200], detail=detail)
    if name in _READS_VOCABULARY and isinstance(config.get("vocabulary"), str):
        yield Finding("danger", READS, name, detail=f"vocabulary is {config['vocabulary'][:200]}")


def _note_input(found: _Config, config: Mapping[str, Any]) -> None:
    shape = config.get("batch_shape") or config.get("batch_input_shape")
    dtype = config.get("dtype")
    if isinstance(dtype, dict):  # a policy, which has the dtype as its name
        inner = dtype.get("config")
        dtype = inner.get("name") if isinstance(inner, dict) else None
    if isinstance(shape, list) and all(d is None or isinstance(d, int) for d in shape):
        name = str(config.get("name", "input"))[:200]
        spec = TensorSpec(dtype if isinstance(dtype, str) else "unknown", tuple(shape))
        found.inputs[name] = spec
