"""Keras files: the `.keras` archive and the older HDF5."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from sojourn.errors import ModelError
from sojourn.kinds.marks import HDF5
from sojourn.probes.model_files.contents import naming
from sojourn.probes.model_files.hdf5_files import NO_H5PY, read_hdf5
from sojourn.probes.model_files.keras_configs import KerasConfig, walk
from sojourn.probes.model_files.second_forms import ARCHIVE, IN_HDF5, second_forms
from sojourn.probes.model_files.summary import Finding, ModelSummary, Weight
from sojourn.probes.model_files.wire import fields, message
from sojourn.values import Signature

_LARGEST_CONFIG = 16 << 20
_WEIGHTS = "model.weights.h5"


class _Unhurried(io.FileIO):
    """A file of which nothing large is read at once.

    The table of an archive is, and each of its entries takes ten times as much as a value here.
    """

    def read(self, size: int | None = -1, /) -> bytes:
        most = _LARGEST_CONFIG + 1
        if size is not None and size > most:
            raise ModelError("its table of contents is larger than any model's")
        return super().read(most if size is None or size < 0 else size)


def read_keras_file(path: str, known: object = None) -> ModelSummary:
    """A Keras file, in the form that Keras loads it in."""
    with open(path, "rb") as file:
        is_hdf5 = file.read(len(HDF5)) == HDF5
    if path.endswith(".keras"):  # Keras looks for an archive at the end, and only then for HDF5
        is_hdf5 = is_hdf5 and not zipfile.is_zipfile(path)
    elif path.endswith((".h5", ".hdf5")):
        is_hdf5 = True
    form = IN_HDF5 if is_hdf5 else ARCHIVE
    read = inspect_hdf5 if is_hdf5 else inspect_keras
    summary = read(path, os.path.getsize(path))
    return replace(summary, findings=(*second_forms(path, form), *summary.findings))


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
    found = walk(_json(config, path))
    weights, weight_findings, unread = _weights(path, members)
    about = _json(metadata, path) if metadata else {}
    version = about.get("keras_version") if isinstance(about, dict) else None
    return ModelSummary(
        path,
        "Keras file",
        size,
        made_with=f"Keras {version}" if isinstance(version, str) else "",
        signatures={"inputs": Signature(found.inputs)} if found.inputs else {},
        layers=dict(found.layers.most_common()),
        weights=weights,
        weight_bytes=sum(weight.size_bytes for weight in weights),
        assets=tuple(m.filename for m in members if m.filename.startswith("assets/")),
        findings=(*found.counted(), *_odd_members(members), *weight_findings),
        unread=unread,
    )


def _odd_members(members: list[zipfile.ZipInfo]) -> Iterator[Finding]:
    for member in members:
        name = PurePosixPath(member.filename)
        if name.is_absolute() or ".." in name.parts:
            yield Finding(
                "danger", "writes files", member.filename, "when unpacked", "leads outside"
            )
    for filename, count in Counter(member.filename for member in members).items():
        if count > 1:
            detail = "each reader takes another of them"
            yield Finding("danger", "two files in one", filename, "", detail, count)


def _weights(
    path: str, members: list[zipfile.ZipInfo]
) -> tuple[tuple[Weight, ...], tuple[Finding, ...], tuple[str, ...]]:
    """The weights in an archive, what leads out of them, and what was not looked at."""
    names = {member.filename for member in members if member.filename.startswith("model.weights.")}
    if _WEIGHTS not in names:
        return (), (), tuple(f"its weights: {name} is not read here" for name in sorted(names))
    try:
        content = read_hdf5(path, _WEIGHTS)
    except ModelError as error:
        return (), (), (f"its weights: {error}",)
    if content is None:
        return (), (), (f"its weights: {NO_H5PY}",)
    findings = (replace(finding, where=_WEIGHTS) for finding in content.findings)
    return content.weights, tuple(findings), ()


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
    with naming(path):
        content = read_hdf5(path)
    if content is None:
        return ModelSummary(path, "Keras HDF5 file", size, unread=(f"its content: {NO_H5PY}",))
    config = content.config
    found = walk(_json(config.encode("utf-8", "replace"), path)) if config else KerasConfig()
    return ModelSummary(
        path,
        "Keras HDF5 file",
        size,
        made_with=f"Keras {content.version}" if content.version else "",
        signatures={"inputs": Signature(found.inputs)} if found.inputs else {},
        layers=dict(found.layers.most_common()),
        weights=content.weights,
        weight_bytes=sum(weight.size_bytes for weight in content.weights),
        findings=(*found.counted(), *content.findings),
        unchecked=() if config else ("its layers: it holds weights only",),
    )


def keras_metadata(data: memoryview) -> list[Finding]:
    """What an older Keras noted beside a SavedModel: a configuration for each of its objects."""
    name = "keras_metadata.pb"
    findings: Counter[Finding] = Counter()
    for _, saved in fields(data):
        for _, content in fields(message(saved)):
            if isinstance(content, memoryview) and bytes(content[:1]) == b"{":
                for finding in walk(_json(bytes(content), name)).counted():
                    findings[replace(finding, where=name, count=1)] += finding.count
    return [replace(finding, count=count) for finding, count in findings.items()]


def _json(content: bytes, path: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: damaged: its configuration is not JSON ({error})") from error
