"""Converted models and the proofs that go with them, in a folder, by what they were made of.

An entry is written beside its place and renamed, so that it is whole or not there. Who writes one
holds a lock on it: others that want the same wait, and what a killed process has left is removed by
the next. Verdicts and files are checked by their SHA-256 before they are used, files once more by
the worker that loads them. The oldest entries go when there is too much. The folder may hold other
things, too: only what is named like an entry and its files is removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import re
import secrets
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from sojourn._version import __version__
from sojourn.engines.converted import sha256
from sojourn.errors import ModelError, SojournError
from sojourn.kinds import KINDS, Load
from sojourn.process import owned_folders
from sojourn.session.conversion.candidates import ENGINES, Examined

FOLDER = "SOJOURN_CACHE"
MOST_BYTES = 4 << 30
_VERDICTS = "verdicts.json"
_PARTS = (_VERDICTS, *(f"model.{kind}" for kind, _ in ENGINES.values()))
_KEPT, _NEW = "sojourn-", ".sojourn-new-"
_ENTRY = re.compile(rf"{_KEPT}[0-9a-f]{{32,64}}(-[0-9a-f]{{8}})?")
_FORMAT = 7
_PATIENCE_SECONDS = 600.0  # with another process that converts the same
_PACKAGES = (
    *("tensorflow", "tensorflow-cpu", "tf2onnx", "onnxruntime", "ai-edge-litert"),
    *("keras", "numpy"),
)


class NotKept(ModelError):
    """What was converted cannot be used: it has no place, or is out of date already."""


class _Sealed(msgspec.Struct, frozen=True):
    """Verdicts as they are written, with the SHA-256 of their key and themselves."""

    sha256: str
    examined: msgspec.Raw


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
    for name, path in _files_of(load):
        digest.update(name.encode(errors="surrogateescape"))
        digest.update(sha256(path).encode())
    return digest.hexdigest()


def state_of(load: Load) -> list[tuple[str, int, int, int]]:
    """What changes when the files of a model are written to or replaced."""
    stats = ((path, os.stat(path)) for _, path in _files_of(load))
    return [(path, stat.st_ino, stat.st_size, stat.st_mtime_ns) for path, stat in stats]


def version_of(package: str) -> str:
    """Which version is installed here; empty if none is."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def find(key: str) -> Examined | None:
    """What was found out about this model, if all of it is still what it was."""
    entry = folder() / f"{_KEPT}{key}"
    try:
        sealed = msgspec.json.decode((entry / _VERDICTS).read_bytes(), type=_Sealed)
        if sealed.sha256 != _seal(key, sealed.examined):
            return None
        examined = msgspec.json.decode(sealed.examined, type=Examined)
    except (OSError, msgspec.DecodeError):
        return None
    with contextlib.suppress(OSError):  # others may have made it, for this process to read
        os.utime(entry)
    examined = msgspec.structs.replace(examined, folder=str(entry))
    return examined if is_intact(examined) else None


def is_intact(examined: Examined) -> bool:
    """Whether the files are there, and what they were."""
    try:
        return all(
            sha256(Path(examined.folder, one.file)) == one.sha256
            for one in examined.candidates
            if one.file
        )
    except OSError:
        return False


class NewEntry:
    """A folder to write an entry in. It goes with this object or its process, unless it is kept."""

    def __init__(self, key: str, pause: Callable[[], None], is_again: bool = False) -> None:
        """Once no other process is at the same, for which `pause` is called again and again.

        If `is_again`, the one who holds it may be the caller, and it is made beside that.
        """
        self._key = key
        self._is_held = False
        try:
            folder().mkdir(parents=True, exist_ok=True)
            if is_again:
                path, fd = owned_folders.create(str(folder()), _NEW)
            else:
                path, fd = _owned(f"{_NEW}{key[:16]}", pause)
        except SojournError:
            raise  # by `pause`; it may be an OSError as well
        except OSError as error:
            raise _cannot_be_kept(error) from error
        self.path = Path(path)
        self.remove = weakref.finalize(self, _let_go, self.path, fd, os.getpid())

    def __enter__(self) -> NewEntry:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_held:
            self.remove()

    def hold(self, examined: Examined) -> Examined:
        """Have it stay for as long as this object does, for this process alone."""
        self._is_held = any(one.file for one in examined.candidates)
        return msgspec.structs.replace(examined, folder=str(self.path))

    def keep(self, examined: Examined) -> Examined:
        """Make it what `find` finds."""
        target = folder() / f"{_KEPT}{self._key}"
        try:
            made = msgspec.Raw(msgspec.json.encode(examined))
            sealed = _Sealed(_seal(self._key, made), made)
            (self.path / _VERDICTS).write_bytes(msgspec.json.encode(sealed))
            if target.exists() and find(self._key) is None:
                _remove(target)  # it is damaged
            self.path.chmod(folder().stat().st_mode & 0o777)  # who may read that may read this
            self.path.rename(target)
        except OSError as error:
            if found := find(self._key):  # another process was faster, and uses it already
                return found
            raise _cannot_be_kept(error) from error
        _make_room(target)
        return msgspec.structs.replace(examined, folder=str(target))


def write(path: Path, content: memoryview) -> None:
    """Write a file of an entry."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise _cannot_be_kept(error) from error


def _owned(name: str, pause: Callable[[], None]) -> tuple[str, int]:
    """A folder of this name, or of another if whoever has that takes too long, and its lock."""
    above = folder()
    path = str(above / name)
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until:
        owned_folders.sweep(str(above), _NEW, _remove)
        try:
            fd = owned_folders.make(path)
        except FileExistsError:
            if not owned_folders.is_owned(path):  # nor removed: there are no locks here
                break
        else:
            if fd >= 0:
                return path, fd
        pause()
    return owned_folders.create(str(above), _NEW)


def _let_go(entry: Path, fd: int, pid: int) -> None:
    if os.getpid() == pid:  # not in a fork
        _remove(entry)
        os.close(fd)


def _seal(key: str, examined: msgspec.Raw) -> str:
    return hashlib.sha256(key.encode() + bytes(examined)).hexdigest()


def _cannot_be_kept(error: OSError) -> NotKept:
    return NotKept(f"converted models cannot be kept: {error}; {FOLDER} names another folder")


def clear() -> int:
    """Remove every entry but those that are being made; how many bytes they had."""
    owned_folders.sweep(str(folder()), _NEW, _remove)
    entries = _entries()
    for entry, _, _ in entries:
        _remove(entry)
    return sum(size for entry, _, size in entries if not entry.exists())


def _files_of(load: Load) -> Iterator[tuple[str, str]]:
    """The model's files: what they are called in it, and their paths."""
    tops = KINDS[load.kind].files_of(os.path.realpath(load.path)) if load.path else ()
    seen: set[str] = set()  # links may go in a circle
    for top in tops:
        if not os.path.isdir(top):
            yield ".", top
        for root, folders, files in os.walk(top, followlinks=True):
            if (real := os.path.realpath(root)) in seen:
                folders.clear()
                continue
            seen.add(real)
            folders.sort()
            for path in (os.path.join(root, name) for name in sorted(files)):
                if os.path.isfile(path):
                    yield os.path.relpath(path, top), path


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


def _remove(entry: str | Path) -> None:
    for part in _PARTS:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(entry, part))
    with contextlib.suppress(OSError):
        os.rmdir(entry)  # unless something else is in it


def _make_room(newest: Path) -> None:
    entries = sorted(_entries(), key=lambda entry: entry[1])
    total = sum(size for _, _, size in entries)
    for entry, _, size in entries:
        if total <= MOST_BYTES:
            break
        if entry != newest:
            _remove(entry)
            total -= size
