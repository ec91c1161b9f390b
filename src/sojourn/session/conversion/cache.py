"""Converted models and the proofs that go with them, in a folder, by what they were made of.

An entry is written beside its place and renamed, so that it is whole or not there. Files are
checked by their SHA-256 before they are used. The oldest entries go when there is too much. The
folder may hold other things, too: only what is named like an entry and its files is removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import re
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from sojourn._version import __version__
from sojourn.errors import ModelError
from sojourn.kinds import KINDS, Load
from sojourn.session.conversion.candidates import ENGINES, Examined

FOLDER = "SOJOURN_CACHE"
MOST_BYTES = 4 << 30
_VERDICTS = "verdicts.json"
_PARTS = (_VERDICTS, *(f"model.{kind}" for kind, _ in ENGINES.values()))
_KEPT, _NEW = "sojourn-", ".sojourn-new-"
_ENTRY = re.compile(rf"{_KEPT}[0-9a-f]{{32,64}}(-[0-9a-f]{{8}})?|\{_NEW}[0-9a-f]{{16}}")
_FORMAT = 2
_CHUNK_BYTES = 2**20
_PACKAGES = (
    *("tensorflow", "tensorflow-cpu", "tf2onnx", "onnxruntime", "ai-edge-litert"),
    *("keras", "numpy"),
)


class NotKept(ModelError):
    """There is no place for converted models."""


def folder() -> Path:
    """Where it is: `SOJOURN_CACHE`, or in the user's folder for caches."""
    chosen = os.environ.get(FOLDER)
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base, "sojourn", "engines")


def key_of(load: Load, arrays: Sequence[np.ndarray], more: str) -> str:
    """What a conversion depends on: the model's bytes, its options, and every version."""
    if load.kind == "builder":
        return secrets.token_hex(16)  # what it builds is not known before it is run
    machine = f"{platform.machine()} {len(os.sched_getaffinity(0))}"  # whose times were taken
    digest = hashlib.sha256(f"{_FORMAT} {__version__} {machine} {more}".encode())
    for package in _PACKAGES:
        digest.update(f"{package} {version_of(package)}\n".encode())
    bare = msgspec.structs.replace(load, path="", device="auto", gpu_bytes=None)
    digest.update(msgspec.msgpack.encode(bare))
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    if load.path:
        for top in KINDS[load.kind].files_of(os.path.realpath(load.path)):
            for path in _files_below(top):
                digest.update(os.path.relpath(path, top).encode(errors="surrogateescape"))
                digest.update(sha256(path).encode())
    return digest.hexdigest()


def version_of(package: str) -> str:
    """Which version is installed here; empty if none is."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def find(key: str) -> Examined | None:
    """What was found out about this model, if its files are still what they were."""
    entry = folder() / f"{_KEPT}{key}"
    try:
        examined = msgspec.json.decode((entry / _VERDICTS).read_bytes(), type=Examined)
        for candidate in examined.candidates:
            if candidate.file and sha256(entry / candidate.file) != candidate.sha256:
                return None
        os.utime(entry)
    except (OSError, msgspec.DecodeError):
        return None
    return msgspec.structs.replace(examined, folder=str(entry))


@contextlib.contextmanager
def new_entry() -> Iterator[Path]:
    """A folder to write an entry in; removed unless it has been kept."""
    entry = folder() / f"{_NEW}{secrets.token_hex(8)}"
    try:
        entry.mkdir(parents=True, mode=0o700)
    except OSError as error:
        raise _cannot_be_kept(error) from error
    try:
        yield entry
    finally:
        _remove(entry)


def keep(entry: Path, key: str, examined: Examined, *, is_found_again: bool = True) -> Examined:
    """Make the entry what `find` finds; or keep its files alone, for this process."""
    target = folder() / f"{_KEPT}{key}"
    if not is_found_again:
        target = target.with_name(f"{target.name}-{secrets.token_hex(4)}")
    elif found := find(key):
        return found  # another process was faster, and uses it already
    try:
        if is_found_again:
            (entry / _VERDICTS).write_bytes(msgspec.json.encode(examined))
        _remove(target)  # damaged, or it would have been found
        entry.rename(target)
    except OSError as error:
        if found := find(key):  # it came between
            return found
        raise _cannot_be_kept(error) from error
    _make_room(target)
    return msgspec.structs.replace(examined, folder=str(target))


def _cannot_be_kept(error: OSError) -> NotKept:
    return NotKept(f"converted models cannot be kept: {error}; {FOLDER} names another folder")


def clear() -> int:
    """Remove every entry; how many bytes they had."""
    entries = _entries()
    for entry, _, _ in entries:
        _remove(entry)
    return sum(size for _, _, size in entries)


def sha256(path: str | Path) -> str:
    """Of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _files_below(top: str) -> Iterator[str]:
    if not os.path.isdir(top):
        yield top
    for root, folders, files in os.walk(top):
        folders.sort()
        yield from (os.path.join(root, name) for name in sorted(files))


def _entries() -> list[tuple[Path, float, int]]:
    found = []
    with contextlib.suppress(OSError):
        for entry in folder().iterdir():
            if _ENTRY.fullmatch(entry.name) and not entry.is_symlink():
                with contextlib.suppress(OSError):
                    parts = (file for file in entry.iterdir() if file.name in _PARTS)
                    size = sum(file.lstat().st_size for file in parts)
                    found.append((entry, entry.stat().st_mtime, size))
    return found


def _remove(entry: Path) -> None:
    for part in _PARTS:
        with contextlib.suppress(OSError):
            (entry / part).unlink()
    with contextlib.suppress(OSError):
        entry.rmdir()  # unless something else is in it


def _make_room(newest: Path) -> None:
    entries = sorted(_entries(), key=lambda entry: entry[1])
    total = sum(size for _, _, size in entries)
    for entry, _, size in entries:
        if total <= MOST_BYTES:
            break
        if entry != newest:
            _remove(entry)
            total -= size
