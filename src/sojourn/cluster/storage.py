"""Storage for the variables of copies that are not open: any URL that fsspec supports.

A state becomes current once every file was read back with the right checksum: then one small file,
written last and replaced atomically, names its folder. If anything fails before that, the older
state stays current; a failure afterwards does not affect the new state.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
from typing import Any

import msgspec

from sojourn.errors import CheckpointError
from sojourn.values import arguments

_CHUNK_BYTES = 8 * 2**20
_CURRENT = "current"
_UNREADABLE = (OSError, ValueError, msgspec.DecodeError)


class Kept(msgspec.Struct, frozen=True):
    """The current state: its folder, and each file's size and checksum."""

    folder: str
    files: dict[str, tuple[int, str]]


class Storage:
    """The states of copies below one URL, such as `s3://bucket/states` or `file:///shared`."""

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs

        self.url = url
        self._files, root = url_to_fs(url)
        self._root = root.rstrip("/")
        self._is_local = "file" in protocols(self._files)

    def put(self, folder: str, model: str, slot: int) -> None:
        """Store the contents of this folder as the state of a model's slot."""
        place = self._place(model, slot)
        before = self._named(place)
        target = secrets.token_hex(8)
        try:
            kept = Kept(target, self._copy(folder, f"{place}/{target}"))
            self._name(place, msgspec.json.encode(kept))
        except BaseException as error:
            self._remove(f"{place}/{target}")  # or each attempt would fill the disk further
            if not isinstance(error, OSError):
                raise
            raise CheckpointError(f"the state of {model!r} cannot be kept: {error}") from error
        if before is not None:
            self._remove(f"{place}/{before.folder}")
        self._make_durable(place, model)

    def get(self, folder: str, model: str, slot: int) -> bool:
        """Copy the state of a model's slot into a new folder; False if no state exists."""
        place = self._place(model, slot)
        while True:
            kept = None
            try:
                kept = self._current(place)
                if kept is not None:
                    self._fetch(kept, place, folder)
                return kept is not None
            except _UNREADABLE as error:
                if self._named(place) != kept:  # a newer state has replaced it meanwhile
                    shutil.rmtree(folder, ignore_errors=True)
                    continue
                raise CheckpointError(f"the state of {model!r} cannot be read: {error}") from error

    def drop(self, model: str, slot: int) -> None:
        """Delete the state of a model's slot."""
        self._remove(self._place(model, slot))

    def _place(self, model: str, slot: int) -> str:
        readable = re.sub(r"[^A-Za-z0-9_.-]", "_", model)[:60]
        unlike = hashlib.sha256(model.encode(errors="surrogatepass")).hexdigest()[:12]
        return f"{self._root}/{readable}-{unlike}/{slot}"

    def _current(self, place: str) -> Kept | None:
        """Return the current state, after checking that no path in it leads out of `place`."""
        try:
            kept = msgspec.json.decode(self._files.cat_file(f"{place}/{_CURRENT}"), type=Kept)
        except FileNotFoundError:
            return None
        for name in (kept.folder, *kept.files):
            if not {*name.split("/")}.isdisjoint(("", ".", "..")):
                raise ValueError(f"{place}/{_CURRENT} names a file elsewhere: {name!r}")
        return kept

    def _named(self, place: str) -> Kept | None:
        """Return the current state; None also if it cannot be read."""
        try:
            return self._current(place)
        except _UNREADABLE:
            return None

    def _fetch(self, kept: Kept, place: str, folder: str) -> None:
        os.makedirs(folder)
        for name, (size, checksum) in kept.files.items():
            target = os.path.join(folder, name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            self._files.get_file(f"{place}/{kept.folder}/{name}", target)
            with open(target, "rb") as file:
                if (os.path.getsize(target), checksum_of(file)) != (size, checksum):
                    raise ValueError(f"{name} was changed since")

    def _copy(self, folder: str, target: str) -> dict[str, tuple[int, str]]:
        files: dict[str, tuple[int, str]] = {}
        for parent, _, names in os.walk(folder):
            for name in names:
                source = os.path.join(parent, name)
                relative = os.path.relpath(source, folder)
                with open(source, "rb") as file:
                    checksum = checksum_of(file)
                to = f"{target}/{relative}"
                self._files.makedirs(to.rpartition("/")[0], exist_ok=True)
                self._files.put_file(source, to)
                if self._is_local:
                    _sync(to)
                with self._files.open(to, "rb") as file:
                    if checksum_of(file) != checksum:
                        raise OSError(f"{to} does not read back as it was written")
                files[relative] = os.path.getsize(source), checksum
        if self._is_local:
            for parent, _, _ in os.walk(target):
                _sync(parent)
        return files

    def _name(self, place: str, content: bytes) -> None:
        """Make a state current, atomically."""
        if not self._is_local:
            self._files.pipe_file(f"{place}/{_CURRENT}", content)  # atomic
            return
        fresh = f"{place}/{_CURRENT}.{secrets.token_hex(4)}"
        try:
            with open(fresh, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, f"{place}/{_CURRENT}")
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(fresh)
            raise

    def _make_durable(self, place: str, model: str) -> None:
        try:
            if self._is_local:
                _sync(place)
        except OSError as error:
            raise CheckpointError(
                f"the new state of {model!r} is in place, but the disk has not confirmed it, and "
                f"it may not survive a power cut: {error}"
            ) from error

    def _remove(self, path: str) -> None:
        """Remove a folder of ours. Its name is not expanded as a pattern; leftovers are ignored."""
        with contextlib.suppress(OSError):
            found = self._files.find(path, withdirs=True, detail=True)
            for name in (*sorted(found, reverse=True), path):
                is_file = name in found and found[name]["type"] == "file"
                with contextlib.suppress(OSError):
                    (self._files.rm_file if is_file else self._files.rmdir)(name)


def protocols(files: Any) -> tuple[str, ...]:
    return (files.protocol,) if isinstance(files.protocol, str) else tuple(files.protocol)


def as_url(path: Any) -> str:
    if isinstance(path, str) and "://" in path:
        return path
    return f"file://{arguments.path('path', path)}"


def checksum_of(file: Any) -> str:
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
