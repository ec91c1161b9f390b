"""The cache of converted models and their proofs: a folder with one entry for each key.

An entry is written under another name and renamed, so that it is complete or absent. Its writer
holds a lock on it: other processes that need the same entry wait, and the next process removes the
leftovers of a killed one. Verdicts and files are checked by their SHA-256 before they are used,
files once more by the worker that loads them. The oldest entries are evicted when the cache is too
large. The folder may hold other files too: only those named like an entry and its files are
removed.
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
_PATIENCE_SECONDS = 600.0  # how long to wait for another process that converts the same model
_PACKAGES = (
    *("tensorflow", "tensorflow-cpu", "tf2onnx", "onnxruntime", "ai-edge-litert"),
    *("keras", "numpy"),
)


class NotKept(ModelError):
    """The converted model cannot be used: it cannot be stored, or is already out of date."""


class _Sealed(msgspec.Struct, frozen=True):
    """Verdicts as they are written, with the SHA-256 of their key and content."""

    sha256: str
    examined: msgspec.Raw


def folder() -> Path:
    """The path of the cache: `SOJOURN_CACHE`, or below the user's cache folder."""
    chosen = os.environ.get(FOLDER)
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base, "sojourn", "engines")


def key_of(load: Load, arrays: Sequence[np.ndarray], more: str) -> str:
    """Return the key of a conversion: a digest of the model's bytes, its options, and all
    versions."""
    if load.kind == "builder":
        return secrets.token_hex(16)  # unique: what a builder builds is unknown before it is run
    machine = f"{platform.machine()} {len(os.sched_getaffinity(0))}"  # on which times are measured
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
    """Return facts that change when the files of a model are written to or replaced."""
    stats = ((path, os.stat(path)) for _, path in _files_of(load))
    return [(path, stat.st_ino, stat.st_size, stat.st_mtime_ns) for path, stat in stats]


def version_of(package: str) -> str:
    """The installed version of a package; empty if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def find(key: str) -> Examined | None:
    """Return the entry of this key; None if it is missing or damaged."""
    entry = folder() / f"{_KEPT}{key}"
    try:
        sealed = msgspec.json.decode((entry / _VERDICTS).read_bytes(), type=_Sealed)
        if sealed.sha256 != _seal(key, sealed.examined):
            return None
        examined = msgspec.json.decode(sealed.examined, type=Examined)
    except (OSError, msgspec.DecodeError):
        return None
    with contextlib.suppress(OSError):  # another user's entry may be read-only for this process
        os.utime(entry)
    examined = msgspec.structs.replace(examined, folder=str(entry))
    return examined if is_intact(examined) else None


def is_intact(examined: Examined) -> bool:
    """Whether all files exist and have the recorded checksums."""
    try:
        return all(
            sha256(Path(examined.folder, one.file)) == one.sha256
            for one in examined.candidates
            if one.file
        )
    except OSError:
        return False


class NewEntry:
    """A folder to write an entry in. It is removed with this object or its process, unless kept."""

    def __init__(self, key: str, pause: Callable[[], None], is_again: bool = False) -> None:
        """Make the folder once no other process writes the same entry; `pause` is called between
        checks.

        If `is_again`, the caller may hold that folder itself, so a folder of another name is made.
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
            raise  # raised by `pause`; some are OSErrors too
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
        """Keep the folder for as long as this object lives, for this process alone."""
        self._is_held = any(one.file for one in examined.candidates)
        return msgspec.structs.replace(examined, folder=str(self.path))

    def keep(self, examined: Examined) -> Examined:
        """Rename the folder to its final name, where `find` finds it."""
        target = folder() / f"{_KEPT}{self._key}"
        try:
            made = msgspec.Raw(msgspec.json.encode(examined))
            sealed = _Sealed(_seal(self._key, made), made)
            (self.path / _VERDICTS).write_bytes(msgspec.json.encode(sealed))
            if target.exists() and find(self._key) is None:
                _remove(target)  # it is damaged
            self.path.chmod(folder().stat().st_mode & 0o777)  # readable to readers of the cache
            self.path.rename(target)
        except OSError as error:
            if found := find(self._key):  # another process was faster, and may use it already
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
    """Make and lock a folder of this name; of another name if its current owner takes too long."""
    above = folder()
    path = str(above / name)
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until:
        owned_folders.sweep(str(above), _NEW, _remove)
        try:
            fd = owned_folders.make(path)
        except FileExistsError:
            if not owned_folders.is_owned(path):  # unowned but not swept: no locks here
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
    """Remove all entries except those being written; return how many bytes were freed."""
    owned_folders.sweep(str(folder()), _NEW, _remove)
    entries = _entries()
    for entry, _, _ in entries:
        _remove(entry)
    return sum(size for entry, _, size in entries if not entry.exists())


def _files_of(load: Load) -> Iterator[tuple[str, str]]:
    """The model's files: their names inside the model, and their paths."""
    tops = KINDS[load.kind].files_of(os.path.realpath(load.path)) if load.path else ()
    seen: set[str] = set()  # symbolic links may form a cycle
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
        os.rmdir(entry)  # fails if other files are in it


def _make_room(newest: Path) -> None:
    entries = sorted(_entries(), key=lambda entry: entry[1])
    total = sum(size for _, _, size in entries)
    for entry, _, size in entries:
        if total <= MOST_BYTES:
            break
        if entry != newest:
            _remove(entry)
            total -= size
