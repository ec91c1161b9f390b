"""Keras files: the `.keras` archive and the older HDF5. Their configuration is read, not obeyed."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from sojourn.errors import ModelError
from sojourn.probes.model_files import hdf5_reader
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


class _Unhurried(io.FileIO):
    """A file of which nothing large is read at once.

    The table of an archive is, and each of its entries takes ten times as much as a value here.
    """

    def read(self, size: int | None = -1, /) -> bytes:
        most = _LARGEST_CONFIG + 1
        if size is not None and size > most:
            raise ModelError("its table of contents is larger than any model's")
        return super().read(most if size is None or size < 0 else size)


def inspect_keras(path: str, size: int) -> ModelSummary:
    """A `.keras` archive. Nothing is unpacked but its two small descriptions."""
    try:
        with _Unhurried(path) as file, zipfile.ZipFile(file) as archive:
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
    # What other methods unpack to cannot be bounded. Keras itself writes neither of them.
    if archive.getinfo(name).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ModelError(f"its {name} is compressed in a way that no Keras file is")
    with archive.open(name) as file:
        # Not the size that it claims to have: an archive can unpack to a million times itself.
        content = file.read(_LARGEST_CONFIG + 1)
    if len(content) > _LARGEST_CONFIG:
        raise ModelError(f"its {name} is larger than {_LARGEST_CONFIG >> 20} MiB")
    return content


def inspect_hdf5(path: str, size: int) -> ModelSummary:
    """A Keras HDF5 file, as far as h5py is installed to look into it."""
    told = _read_hdf5(path)
    if told is None:
        reason = "its content: h5py, which reads HDF5, is not installed"
        return ModelSummary(path, "Keras HDF5 file", size, unchecked=(reason,))
    config = told["config"]
    found = _walk(_json(config.encode("utf-8", "replace"), path)) if config else _Config()
    weights = tuple(
        Weight(name, TensorSpec(dtype, tuple(shape)), count)
        for name, dtype, shape, count in told["weights"]
    )
    outside = (Finding("danger", READS, name, detail=detail) for name, detail in told["outside"])
    return ModelSummary(
        path,
        "Keras HDF5 file",
        size,
        made_with=f"Keras {told['version']}" if told["version"] else "",
        signatures={"inputs": Signature(found.inputs)} if found.inputs else {},
        layers=dict(found.layers.most_common()),
        weights=weights,
        weight_bytes=sum(weight.size_bytes for weight in weights),
        findings=(*found.counted(), *outside),
        unchecked=() if config else ("its layers: it holds weights only",),
    )


def _read_hdf5(path: str) -> dict[str, Any] | None:
    """What the reader says, from a process of its own; `None` without h5py."""
    try:
        done = subprocess.run(
            # Absolute, so that no name of a file is taken for an option.
            [sys.executable, hdf5_reader.__file__, os.path.abspath(path)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=hdf5_reader.LIMIT_SECONDS,
        )
        told = json.loads(done.stdout)
    except subprocess.TimeoutExpired as error:
        raise ModelError(f"{path}: damaged: reading it as HDF5 never ends") from error
    except ValueError as error:
        raise ModelError(f"{path}: damaged: the HDF5 library fails on it") from error
    if "error" in told:
        raise ModelError(f"{path}: damaged: not a readable HDF5 file ({told['error']})")
    return None if "missing" in told else dict(told)


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
