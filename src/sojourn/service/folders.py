"""Find models and their versions in folders, by names and first bytes only."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from sojourn.errors import ModelError
from sojourn.kinds import KINDS
from sojourn.kinds.paths import recognise
from sojourn.service.versions import number_in

_SUFFIXES = tuple(suffix for kind in KINDS.values() for suffix in kind.suffixes)


def find_models(path: str) -> dict[str, str]:
    """Return the models at `path` by name: `path` itself, if it is a model, else every model in
    that folder."""
    if is_model(path) or find_versions(path):
        if not is_name(name := name_of(path)):
            raise ModelError(f"{path}: its name is not UTF-8; serve it as NAME=PATH")
        return {name: path}
    if not os.path.isdir(path):
        recognise(path)  # raises an error that says what is wrong with it
    found: dict[str, str] = {}
    for entry in sorted(os.listdir(path)):
        inside = os.path.join(path, entry)
        if entry.startswith(".") or not (is_model(inside) or _has_versions(inside)):
            continue
        if not is_name(entry):
            continue
        name = name_of(inside)
        if name in found:
            raise ModelError(f"{found[name]} and {inside} would both be served as {name!r}")
        found[name] = inside
    return found


def find_versions(path: str) -> dict[int, str]:
    """Return the models in the numbered folders below `path`, by number."""
    found = {}
    for entry in _entries(path):
        number = None if entry.startswith("0") else number_in(entry)
        if number is not None:
            model = _model_in(os.path.join(path, entry))
            if model is not None:
                found[number] = model
    return found


def versions_at(path: str) -> dict[int, str]:
    """Return every version of the model at `path`: 1 for a model without numbered folders."""
    return find_versions(path) or {1: path}


def frameworks_of(paths: Iterable[str]) -> set[str]:
    """Return the frameworks that workers for the models at these paths must import. Paths without a
    model are skipped: opening them reports the error."""
    found = set()
    for path in paths:
        with contextlib.suppress(OSError):
            for model in versions_at(path).values():
                with contextlib.suppress(ModelError, OSError):
                    found.add(recognise(model).kind.framework)
    return found


def name_of(path: str) -> str:
    """Return the default name of the model at `path`."""
    base = os.path.basename(os.path.normpath(path))
    return base if os.path.isdir(path) else os.path.splitext(base)[0]


def is_name(name: str) -> bool:
    """Whether requests and answers can contain the name: file names may be any bytes."""
    return name.encode(errors="replace").decode() == name


def is_model(path: str) -> bool:
    """Whether `path` is a model that can be opened, with a matching suffix if it is a file."""
    if os.path.isfile(path) and not path.endswith(_SUFFIXES):
        return False
    try:
        return not recognise(path).refusal
    except (ModelError, OSError):
        return False


def _has_versions(folder: str) -> bool:
    try:
        return bool(find_versions(folder))
    except PermissionError:  # such as a volume's lost+found: other folders are served
        return False


def _model_in(folder: str) -> str | None:
    """Return the folder itself, or the only model file in it; None also if it may not be read."""
    if is_model(folder):
        return folder
    try:
        files = [os.path.join(folder, entry) for entry in _entries(folder)]
    except PermissionError:
        return None
    models = [file for file in files if os.path.isfile(file) and is_model(file)]
    return models[0] if len(models) == 1 else None


def _entries(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (NotADirectoryError, FileNotFoundError):
        return []
