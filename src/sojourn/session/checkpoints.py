"""Saved state on disk: durable, atomic, checked.

A path is a folder with TensorFlow's own checkpoint files (`state.index`, `state.data-...`, and
`checkpoint`, so that `tf.train.load_checkpoint(path)` finds them) and `manifest.json`, which holds
the size and SHA-256 of each and a seal over itself.

The worker only has TensorFlow write its files, into a hidden folder beside the path. All else is
done here, in the client: it outlives a worker that dies in the middle, needs no TensorFlow, and
can tell a full disk from a full memory. Nothing counts before everything was synced, read back
from the disk and renamed into place; until then, whatever was at the path before is untouched.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import glob
import hashlib
import mmap
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

import msgspec

from sojourn._version import __version__
from sojourn.errors import CheckpointError
from sojourn.values import format_bytes

STATE = "state"
MANIFEST = "manifest.json"
_POINTER = "checkpoint"
_FORMAT = 1
_CHUNK_BYTES = 2**20
_SAVING, _REPLACED = "saving", "replaced"
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


class Written(msgspec.Struct, frozen=True):
    """What a worker tells of the checkpoint it has written."""

    variables: list[str]
    uninitialized: list[str]


class FileFacts(msgspec.Struct, frozen=True):
    """One file of a saved state."""

    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """What belongs to a saved state. `seal` is the SHA-256 of all the rest."""

    format: int
    session: str
    sojourn: str
    saved: str
    files: dict[str, FileFacts]
    variables: list[str]
    uninitialized: list[str]
    seal: str = ""

    def sealed(self) -> Manifest:
        """With the right seal."""
        bare = msgspec.json.encode(msgspec.structs.replace(self, seal=""))
        return msgspec.structs.replace(self, seal=hashlib.sha256(bare).hexdigest())


@dataclass(frozen=True, slots=True)
class Saved:
    """A state that can be restored: where its TensorFlow files are, and what it need not have."""

    prefix: str
    may_lack: list[str]
    has_values: bool = True


def write(path: str, produce: Callable[[str], Written], session: str) -> None:
    """Save to `path`. `produce` writes TensorFlow's files under the prefix it is given.

    When this returns, the state is on the disk. When it raises, what was there before still is.
    """
    path = os.path.realpath(path)  # a link stays, and leads to the new state
    with _explaining(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        settle(path)
        _require_replaceable(path)
        with _temporary_folder(path) as folder:
            _fill(folder, produce, session)
            _put_in_place(folder, path)
            _sync(os.path.dirname(path))


def find(path: str) -> Saved:
    """The state at `path`, after every byte of it was checked.

    Also a plain checkpoint of TensorFlow's, by its prefix; those have no checksums of ours.
    """
    path = os.path.realpath(path)
    if not os.path.isdir(path) and os.path.isfile(path + ".index"):
        return Saved(path, [])
    with _explaining(path, writing=False):
        if os.path.isdir(os.path.dirname(path)):
            settle(path)
        manifest = _read_manifest(path)
        for name, facts in manifest.files.items():
            _check_file(path, name, facts)
    return Saved(os.path.join(path, STATE), manifest.uninitialized, bool(manifest.variables))


def settle(path: str) -> None:
    """Remove what killed saves have left beside `path`; bring back what one had set aside."""
    for replaced in _beside(path, _REPLACED):
        if not os.path.exists(path):
            os.rename(replaced, path)
        else:
            shutil.rmtree(replaced, ignore_errors=True)
    for folder in _beside(path, _SAVING):
        with contextlib.suppress(OSError):
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held by whoever still saves
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(fd)


# -- writing -----------------------------------------------------------------------------------


def _fill(folder: str, produce: Callable[[str], Written], session: str) -> None:
    written = produce(os.path.join(folder, STATE))
    if written.variables:
        pointer = f'model_checkpoint_path: "{STATE}"\nall_model_checkpoint_paths: "{STATE}"\n'
        _write_file(folder, _POINTER, pointer.encode())
    files = {name: _facts(os.path.join(folder, name)) for name in sorted(os.listdir(folder))}
    manifest = Manifest(
        format=_FORMAT,
        session=session,
        sojourn=__version__,
        saved=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        files=files,
        variables=written.variables,
        uninitialized=written.uninitialized,
    ).sealed()
    _write_file(folder, MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
    for name in [*files, MANIFEST]:
        _sync(os.path.join(folder, name), forget=True)
    _sync(folder)
    # Now from the disk, not from memory.
    for name, facts in _read_manifest(folder).files.items():
        _check_file(folder, name, facts)


@contextlib.contextmanager
def _temporary_folder(path: str) -> Iterator[str]:
    """A hidden folder beside `path`, locked while we live; gone at the end."""
    while True:
        folder = _hidden(path, _SAVING, secrets.token_hex(4))
        fd = -1
        try:
            os.mkdir(folder)
            try:
                fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                continue  # somebody who settles the path took it for a leftover: once more
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.isdir(folder):
                continue
            yield folder
            return
        finally:
            try:
                shutil.rmtree(folder, ignore_errors=True)  # after an exchange, the state of before
            finally:
                if fd >= 0:
                    os.close(fd)  # and the lock with it: the next save can remove what is left


def _put_in_place(folder: str, path: str) -> None:
    if not os.path.lexists(path):
        try:
            os.rename(folder, path)
            return
        except OSError:
            if not os.path.isdir(path):
                raise
            # Somebody else was faster: exchange.
    if _exchange(folder, path):
        return
    # A file system that cannot exchange. Killed in between, `settle` brings the old one back.
    aside = _hidden(path, _REPLACED, secrets.token_hex(4))
    os.rename(path, aside)
    try:
        os.rename(folder, path)
    except BaseException:
        os.rename(aside, path)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _exchange(one: str, other: str) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        return False
    status = libc.renameat2(
        _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE
    )
    number = ctypes.get_errno()
    if status == 0:
        return True
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), other)


def _require_replaceable(path: str) -> None:
    if not os.path.lexists(path):
        return
    if not os.path.isdir(path):
        raise CheckpointError(f"there is a file at {path}, which is not replaced by saved state")
    names = os.listdir(path)
    if names and MANIFEST not in names:
        raise CheckpointError(
            f"the folder {path} holds something else ({', '.join(sorted(names)[:4])}), which is "
            "not replaced by saved state"
        )


def _write_file(folder: str, name: str, content: bytes) -> None:
    with open(os.path.join(folder, name), "wb") as file:
        file.write(content)


def _sync(path: str, forget: bool = False) -> None:
    """Have it on the disk; `forget` drops it from memory, so that the next read is from there."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        if forget and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


# -- reading -----------------------------------------------------------------------------------


def _read_manifest(folder: str) -> Manifest:
    if not os.path.isdir(folder):
        raise CheckpointError("there is nothing there")
    try:
        with open(os.path.join(folder, MANIFEST), "rb") as file:
            manifest = msgspec.json.decode(file.read(), type=Manifest)
    except FileNotFoundError:
        raise CheckpointError(f"a part is missing: {MANIFEST}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(f"{MANIFEST} is damaged: {error}") from None
    if manifest.seal != manifest.sealed().seal:
        raise CheckpointError(f"{MANIFEST} is damaged: its checksum differs")
    if manifest.format > _FORMAT:
        raise CheckpointError(f"it was saved by a newer version, sojourn {manifest.sojourn}")
    return manifest


def _check_file(folder: str, name: str, facts: FileFacts) -> None:
    if os.path.basename(name) != name:
        raise CheckpointError(f"{MANIFEST} names a file elsewhere: {name}")
    try:
        found = _facts(os.path.join(folder, name))
    except FileNotFoundError:
        raise CheckpointError(f"a part is missing: {name}") from None
    if found.bytes < facts.bytes:
        raise CheckpointError(f"{name} is truncated: {found.bytes} of {facts.bytes} bytes")
    if found != facts:
        raise CheckpointError(f"{name} is damaged: its checksum differs")


def _facts(path: str) -> FileFacts:
    digest = hashlib.sha256()
    size = 0
    # From the kernel: what a thread has from malloc stays with its arena, a chunk for each thread.
    with (
        mmap.mmap(-1, _CHUNK_BYTES) as buffer,
        memoryview(buffer) as view,
        open(path, "rb", buffering=0) as file,
    ):
        while count := file.readinto(view):
            digest.update(view[:count])
            size += count
    return FileFacts(size, digest.hexdigest())


# -- names and errors --------------------------------------------------------------------------


def _hidden(path: str, role: str, suffix: str) -> str:
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{role}-{suffix}")


def _beside(path: str, role: str) -> list[str]:
    pattern = _hidden(glob.escape(path), role, "[0-9a-f]" * 8)
    return glob.glob(pattern)


@contextlib.contextmanager
def _explaining(path: str, writing: bool = True) -> Iterator[None]:
    """Errors that say what was tried, where, and which kind of trouble it was."""
    doing = "state cannot be saved to" if writing else "state cannot be restored from"
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(f"{doing} {path}: {_translated(str(error), path)}") from None
    except OSError as error:
        raise CheckpointError(f"{doing} {path}: {_trouble(error, path)}") from error


def _trouble(error: OSError, path: str) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _full(path)
    if error.errno == errno.EROFS:
        return "the file system is read-only"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"writing or reading there is not permitted ({error.filename})"
    return str(error)


def _translated(message: str, path: str) -> str:
    """What TensorFlow says when it writes, in plain words where it is about the disk."""
    if "No space left" in message or "Disk quota" in message:
        return _full(path)
    if "Read-only file system" in message:
        return "the file system is read-only"
    return message


def _full(path: str) -> str:
    try:
        found = os.statvfs(os.path.dirname(path))
        free = f": {format_bytes(found.f_bavail * found.f_frsize)} are free, and that is too little"
    except OSError:
        free = ""
    return f"the disk is full{free}"
