"""What kind of model lies at a path, told by looking at names and first bytes alone."""

from __future__ import annotations

import os

from sojourn.errors import ModelError
from sojourn.probes.model_paths import HDF5, chosen_checkpoint

_SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt")
_ZIP = b"PK\x03\x04"


def kind_of_path(path: str) -> tuple[str, str]:
    """The kind of engine that loads it, and the path to give it."""
    if path.endswith(".meta") and os.path.isfile(path):
        return "metagraph", path.removesuffix(".meta")
    if os.path.isdir(path):
        return _kind_of_folder(path)
    if os.path.isfile(path):
        return _kind_of_file(path), path
    if os.path.isfile(path + ".meta"):
        return "metagraph", path
    if os.path.isfile(path + ".index"):
        raise ModelError(
            f"{path} is a checkpoint without its meta graph ({path}.meta is missing): it holds "
            "variables but no model; open the model and restore it"
        )
    raise ModelError(f"there is nothing at {path}")


def _kind_of_folder(path: str) -> tuple[str, str]:
    names = sorted(os.listdir(path))
    if any(name in names for name in _SAVED_MODEL):
        return "savedmodel", path
    if "manifest.json" in names:
        raise ModelError(f"{path} is saved state, not a model: open the model and restore it")
    prefix = chosen_checkpoint(path, ".meta")
    if prefix is not None:
        return "metagraph", prefix
    if not names:
        raise ModelError(f"the folder {path} is empty")
    shown = ", ".join(names[:8]) + (" and more" if len(names) > 8 else "")
    raise ModelError(
        f"the folder {path} is neither a SavedModel (no saved_model.pb) nor a checkpoint with a "
        f"meta graph; it has {shown}"
    )


def _kind_of_file(path: str) -> str:
    with open(path, "rb") as file:
        start = file.read(8)
    if not start:
        raise ModelError(f"the file {path} is empty")
    if path.endswith(".weights.h5"):
        raise ModelError(
            f"{path} holds weights but no model; open a function that builds the model and loads "
            "them into it"
        )
    if path.endswith((".keras", ".h5", ".hdf5")):
        if start[:4] == _ZIP or start == HDF5:
            return "keras"
        raise ModelError(f"{path} is not a Keras model: it starts with {start!r}")
    if os.path.basename(path) in _SAVED_MODEL:
        raise ModelError(f"{path} is part of a SavedModel; open its folder {os.path.dirname(path)}")
    if path.endswith((".pb", ".pbtxt")):
        return "frozen"
    if start[:4] == _ZIP or start == HDF5:
        return "keras"
    raise ModelError(
        f"{path} is no kind of model that is known here: SavedModel folder, .keras, .h5, "
        "frozen .pb, or checkpoint with a .meta file"
    )
