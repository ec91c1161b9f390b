"""Where the variables of a copy are kept while it is open nowhere: any URL that fsspec knows.

A state counts once every file was read back and its checksum agreed; then one small file names it,
written last and replaced as a whole. Whatever fails before, the older state is still the one.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from typing import Any

import msgspec

from sojourn.errors import CheckpointError

_CHUNK_BYTES = 8 * 2**20
_CURRENT = "current"


class Kept(msgspec.Struct, frozen=True):
    """The state that counts: its folder, and each file's size and checksum."""

    folder: str
    files: dict[str, tuple[int, str]]


class Storage:
    """The states of copies below one URL, such as `s3://bucket/states` or `file:///shared`."""

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs

        self.url = url
        self._files, root = url_to_fs(url)
        self._root = root.rstrip("/")
        self._is_local = "file" in _protocols(self._files)

    def put(self, folder: str, model: str, slot: int) -> None:
        """Keep what was saved in this folder as the state of a model's slot."""
        place = self._place(model, slot)
        before = self._current(place)
        target = secrets.token_hex(8)
        try:
            kept = Kept(target, self._copy(folder, f"{place}/{target}"))
            self._name(place, msgspec.json.encode(kept))
        except OSError as error:
            raise CheckpointError(f"the state of {model!r} cannot be kept: {error}") from error
        if before is not None:
            self._remove(f"{place}/{before.folder}")

    def get(self, folder: str, model: str, slot: int) -> bool:
        """Bring the state of a model's slot into a new folder; False if there is none."""
        place = self._place(model, slot)
        kept = self._current(place)
        if kept is None:
            return False
        os.makedirs(folder)
        for name, (size, checksum) in kept.files.items():
            target = os.path.join(folder, name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            self._files.get_file(f"{place}/{kept.folder}/{name}", target)
            with open(target, "rb") as file:
                if (os.path.getsize(target), _checksum(file)) != (size, checksum):
                    raise CheckpointError(f"{name} of the state of {model!r} was changed since")
        return True

    def drop(self, model: str, slot: int) -> None:
        """Forget the state of a model's slot."""
        self._remove(self._place(model, slot))

    def _place(self, model: str, slot: int) -> str:
        readable = re.sub(r"[^A-Za-z0-9_.-]", "_", model)[:60]
        unlike = hashlib.sha256(model.encode()).hexdigest()[:12]
        return f"{self._root}/{readable}-{unlike}/{slot}"

    def _current(self, place: str) -> Kept | None:
        try:
            return msgspec.json.decode(self._files.cat_file(f"{place}/{_CURRENT}"), type=Kept)
        except FileNotFoundError:
            return None

    def _copy(self, folder: str, target: str) -> dict[str, tuple[int, str]]:
        files: dict[str, tuple[int, str]] = {}
        for parent, _, names in os.walk(folder):
            for name in names:
                source = os.path.join(parent, name)
                relative = os.path.relpath(source, folder)
                with open(source, "rb") as file:
                    checksum = _checksum(file)
                to = f"{target}/{relative}"
                self._files.makedirs(to.rpartition("/")[0], exist_ok=True)
                self._files.put_file(source, to)
                if self._is_local:
                    _sync(to)
                with self._files.open(to, "rb") as file:
                    if _checksum(file) != checksum:
                        raise OSError(f"{to} reads otherwise than it was written")
                files[relative] = os.path.getsize(source), checksum
        if self._is_local:
            for parent, _, _ in os.walk(target):
                _sync(parent)
        return files

    def _name(self, place: str, content: bytes) -> None:
        """Say which state counts, in one go."""
        if not self._is_local:
            self._files.pipe_file(f"{place}/{_CURRENT}", content)  # whole or not at all
            return
        fresh = f"{place}/{_CURRENT}.{secrets.token_hex(4)}"
        with open(fresh, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, f"{place}/{_CURRENT}")
        _sync(place)

    def _remove(self, path: str) -> None:
        try:
            self._files.rm(path, recursive=True)
        except FileNotFoundError:
            pass


def _protocols(files: Any) -> tuple[str, ...]:
    return (files.protocol,) if isinstance(files.protocol, str) else tuple(files.protocol)


def _checksum(file: Any) -> str:
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
