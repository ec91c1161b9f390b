"""Recognise the kind of a model at a path, by file names and first bytes alone.

`open` and `inspect` both use this module: with two answers, a path could show one model and load
another.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from sojourn.errors import ModelError
from sojourn.kinds import KINDS, Kind

_SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt")
_START_BYTES = 4096
_LARGEST_NOTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Found:
    """What was found at a path."""

    kind: Kind
    path: str  # for its loader and reader: the folder, the file or the prefix of a checkpoint
    refusal: str = ""  # why it cannot be opened, although `inspect` can show it

    def model(self) -> Found:
        """Return this object if it can be opened. Raises ModelError otherwise."""
        if self.refusal:
            raise ModelError(self.refusal)
        return self


def readable(model: str | os.PathLike[str]) -> str:
    """Return the absolute path of a model that is to be opened. Raises ModelError if it is not
    valid UTF-8."""
    path = os.path.abspath(os.fspath(model))
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ModelError(
            f"frameworks read models from paths that are valid UTF-8, and {path!r} is not"
        ) from None
    return path


def recognise(path: str) -> Found:
    """Recognise what is at the path. Raises ModelError if it is of no known kind."""
    folder, name = os.path.split(path)
    if os.path.isdir(path):
        return _in_folder(path)
    if os.path.isfile(path):
        if name in _SAVED_MODEL:
            whole = folder or "."
            return Found(
                KINDS["savedmodel"],
                whole,
                f"{path} is part of a SavedModel; open its folder {whole}",
            )
        prefix, dot, ending = path.rpartition(".")
        if dot and ending in ("meta", "index"):
            return _checkpoint(prefix)
        return _of_file(path)
    if os.path.isfile(path + ".meta") or os.path.isfile(path + ".index"):
        return _checkpoint(path)
    what = "neither a file nor a folder" if os.path.exists(path) else "no such file or folder"
    raise ModelError(f"there is nothing at {path}: {what}")


def _in_folder(path: str) -> Found:
    names = sorted(os.listdir(path))
    if any(name in names for name in _SAVED_MODEL):
        return Found(KINDS["savedmodel"], path)
    if "manifest.json" in names:
        return _not_a_model("state", os.path.join(path, "state"), path)
    # Variables alone are not a model, but `inspect` can show them.
    prefix = chosen_checkpoint(path, ".meta") or chosen_checkpoint(path, ".index")
    if prefix is not None:
        return _checkpoint(prefix)
    if any(name.endswith((".meta", ".index")) for name in names):
        raise ModelError(f"{path} has several checkpoints, and nothing says which; name one")
    if not names:
        raise ModelError(f"the folder {path} is empty: no saved_model.pb and no checkpoint")
    shown = ", ".join(names[:8]) + (" and more" if len(names) > 8 else "")
    within = _latest([name for name in names if _is_saved_model(os.path.join(path, name))])
    raise ModelError(
        f"the folder {path} is neither a SavedModel (no saved_model.pb) nor a checkpoint with a "
        f"meta graph; " + (f"open {os.path.join(path, within)}" if within else f"it has {shown}")
    )


def _is_saved_model(path: str) -> bool:
    return any(os.path.isfile(os.path.join(path, name)) for name in _SAVED_MODEL)


def _latest(names: list[str]) -> str:
    """Choose among the models in a folder: the only one, or the latest of numbered versions, as
    model servers store them."""
    if all(name.isdecimal() for name in names):
        return max(names, key=int, default="")
    return names[0] if len(names) == 1 else ""


def _checkpoint(prefix: str) -> Found:
    if os.path.isfile(prefix + ".meta"):
        return Found(KINDS["metagraph"], prefix)
    return _not_a_model("variables", prefix, prefix)


def _not_a_model(kind: str, path: str, named: str) -> Found:
    return Found(KINDS[kind], path, f"{named} {KINDS[kind].instead}")


def _of_file(path: str) -> Found:
    with open(path, "rb") as file:
        start = file.read(_START_BYTES)
    if not start:
        raise ModelError(f"the file {path} is empty")
    by_name = [
        (len(suffix), kind)
        for kind in KINDS.values()
        for suffix in kind.suffixes
        if path.endswith(suffix)
    ]
    if by_name:
        # The name decides before the content, as it does in the loaders.
        _, kind = max(by_name, key=lambda found: found[0])
        if kind.begins is not None and not kind.name_decides and not kind.begins(start):
            raise ModelError(f"{path} is not {kind.what}: it starts with {start[:8]!r}")
        return _not_a_model(kind.name, path, path) if kind.instead else Found(kind, path)
    for kind in KINDS.values():
        if kind.begins is not None and kind.begins(start):
            named = " or ".join(kind.suffixes)
            refusal = f"{path} looks like {kind.what}; to be opened, its name must end in {named}"
            return Found(kind, path, refusal if kind.needs_suffix else "")
    known = ", ".join(suffix for kind in KINDS.values() if kind.loader for suffix in kind.suffixes)
    raise ModelError(
        f"{path}: unrecognised model format. A model is a SavedModel folder, a checkpoint with a "
        f".meta file, or a file of one of these: {known}"
    )


def chosen_checkpoint(folder: str, ending: str) -> str | None:
    """Return the checkpoint of a folder, as a path without `ending`; `None` if it is ambiguous.

    It is the one that the file `checkpoint` names, or the last by name if that file names none of
    those present, or the only one.
    """
    found = sorted(os.listdir(folder))
    prefixes = [name.removesuffix(ending) for name in found if name.endswith(ending)]
    if "checkpoint" in found and prefixes:
        named = _named_in(os.path.join(folder, "checkpoint"))
        return os.path.join(folder, named if named in prefixes else prefixes[-1])
    return os.path.join(folder, prefixes[0]) if len(prefixes) == 1 else None


def _named_in(path: str) -> str:
    """Return the name (without its folder, which may have moved) of the latest checkpoint according
    to TensorFlow's `checkpoint` file."""
    # Not blocking, because the file may be a pipe that is never written to.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""  # a dangling link, or not readable by us
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        note = os.read(descriptor, _LARGEST_NOTE).decode("utf-8", "replace")
    finally:
        os.close(descriptor)
    for line in note.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model_checkpoint_path":
            return os.path.basename(value.strip().strip('"'))
    return ""
