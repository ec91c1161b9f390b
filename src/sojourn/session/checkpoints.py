"""Saved state on disk: durable, atomic, checked.

A path is a folder with TensorFlow's own checkpoint files (`state.index`, `state.data-...`, and
`checkpoint`, so that `tf.train.load_checkpoint(path)` finds them) and `manifest.json`, which holds
the size and SHA-256 of each file and a seal over itself.

The worker only has TensorFlow write its files, into a hidden folder beside the path. All else is
done here, in the client: it outlives a worker that dies in the middle, needs no TensorFlow, and
can tell a full disk from exhausted memory. A save counts only after everything was synced, read
back from the disk and renamed into place; until then, the previous content of the path is
untouched. How one folder replaces another: `sojourn.session.folders`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import math
import mmap
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

import msgspec

from sojourn._version import __version__
from sojourn.errors import CheckpointError
from sojourn.session.folders import Site, make_folders, remove_parts, site_of, take_on
from sojourn.values import format_bytes

STATE = "state"
MANIFEST = "manifest.json"
_POINTER = "checkpoint"
_FORMAT = 1
_CHUNK_BYTES = 2**20
_MOST_MANIFEST_BYTES = 2**26
# Non-blocking, because the name may not be a file: opening a pipe would wait for a writer.
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


class Written(msgspec.Struct, frozen=True):
    """A worker's description of the checkpoint that it has written."""

    variables: list[str]
    uninitialized: list[str]


class FileFacts(msgspec.Struct, frozen=True):
    """Size and checksum of one file of a saved state."""

    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """The content of `manifest.json`. `seal` is the SHA-256 of all other fields."""

    format: int
    session: str
    sojourn: str
    saved: str
    files: dict[str, FileFacts]
    variables: list[str]
    uninitialized: list[str]
    seal: str = ""

    def sealed(self) -> Manifest:
        """Return a copy with the correct seal."""
        bare = msgspec.json.encode(msgspec.structs.replace(self, seal=""))
        return msgspec.structs.replace(self, seal=hashlib.sha256(bare).hexdigest())


@dataclass(frozen=True, slots=True)
class Saved:
    """A state that can be restored. Its folder is not removed before the `opened` block ends."""

    folder: int  # a descriptor
    path: str
    name: str  # the name of TensorFlow's checkpoint in the folder
    may_lack: list[str]
    has_values: bool = True

    def prefix(self) -> bytes:
        """The current prefix of TensorFlow's files: a save that replaces this state moves them."""
        try:
            folder = os.readlink(f"/proc/self/fd/{self.folder}")
        except OSError:  # no /proc
            folder = self.path
        return os.fsencode(os.path.join(folder, self.name))

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode, by which a process that opens the folder by name recognises it."""
        found = os.fstat(self.folder)
        return found.st_dev, found.st_ino


def write(path: str, produce: Callable[[bytes], Written], session: str) -> None:
    """Save to `path`. `produce` writes TensorFlow's files under the prefix it is given.

    When this returns, the state is on the disk. When it raises, the previous state is still there,
    or the error says that the new state is in place.
    """
    path = os.path.realpath(path)  # a symbolic link is kept, and leads to the new state
    with _explaining(path):
        if os.path.ismount(path):
            raise CheckpointError("a mount point cannot be replaced; a folder below it can")
        make_folders(os.path.dirname(path))
        with site_of(path, _is_part) as site:
            site.settle()
            _require_replaceable(site)
            with site.prepared() as (name, folder):
                mode = stat.S_IMODE(os.fstat(folder).st_mode)
                os.fchmod(folder, stat.S_IRWXU)  # until `_dress` sets the final mode
                prefix = os.path.join(os.path.dirname(path), name, STATE)
                _fill(folder, lambda: produce(os.fsencode(prefix)), session)
                _dress(folder, mode, site)
                site.put(name, _require_only_state)
                _follow(site, name, folder)
                _make_durable(site, path)


@contextlib.contextmanager
def opened(path: str) -> Iterator[Saved]:
    """Provide the state at `path`, after checking every byte; it stays whole until the block ends,
    even if it is replaced meanwhile.

    `path` may also be the prefix of a plain TensorFlow checkpoint, which has no checksums of ours.
    """
    path = os.path.realpath(path)
    with contextlib.ExitStack() as stack:
        with _explaining(path, writing=False):
            saved = _find(path, stack)
        yield saved


def remove(path: str) -> None:
    """Remove a saved state, even an incomplete one. Other files in the folder stay."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            remove_parts(fd, _is_part)
        finally:
            os.close(fd)
        os.rmdir(path)


def _find(path: str, stack: contextlib.ExitStack) -> Saved:
    above, name = os.path.split(path)
    if not os.path.isdir(path) and os.path.isfile(path + ".index"):
        folder = os.open(above, os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, folder)
        return Saved(folder, above, name, [])
    try:
        site = stack.enter_context(site_of(path, _is_part, reading=True))
        with contextlib.suppress(OSError):  # we may have read permission only
            site.settle()
        folder = stack.enter_context(site.opened())
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError("there is nothing there") from None
    manifest = _read_manifest(folder)
    for part, facts in manifest.files.items():
        _check_file(folder, part, facts)
    return Saved(folder, path, STATE, manifest.uninitialized, bool(manifest.variables))


# -- writing -----------------------------------------------------------------------------------


def _fill(folder: int, produce: Callable[[], Written], session: str) -> None:
    written = produce()
    if written.variables:
        pointer = f'model_checkpoint_path: "{STATE}"\nall_model_checkpoint_paths: "{STATE}"\n'
        _write_file(folder, _POINTER, pointer.encode())
    files = {name: _facts(folder, name) for name in sorted(os.listdir(folder))}
    manifest = Manifest(
        format=_FORMAT,
        session=session.encode(errors="backslashreplace").decode(),
        sojourn=__version__,
        saved=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        files=files,
        variables=written.variables,
        uninitialized=written.uninitialized,
    ).sealed()
    _write_file(folder, MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
    for name in [*files, MANIFEST]:
        with _file(folder, name) as fd:
            os.fsync(fd)
            if hasattr(os, "posix_fadvise"):  # the check below is to read from the disk
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.fsync(folder)
    for name, facts in _read_manifest(folder).files.items():
        _check_file(folder, name, facts)


def _require_replaceable(site: Site) -> None:
    found = site.status()
    if found is None:
        return
    if not stat.S_ISDIR(found.st_mode):
        raise CheckpointError("there is a file, which is not replaced by saved state")
    with site.opened() as folder:
        for name, facts in _require_only_state(folder).items():
            if _facts(folder, name) != facts:
                raise CheckpointError(
                    f"{name} is not what {MANIFEST} lists, and is not replaced by saved state"
                )


def _require_only_state(folder: int) -> dict[str, FileFacts]:
    """Return the listed files that the folder has. Raise if it has any other file, as far as names
    and sizes tell."""
    names = os.listdir(folder)
    try:
        listed = _read_manifest(folder).files if names else {}
    except CheckpointError:
        raise _foreign(names) from None  # a `manifest.json` of some other program
    foreign = []
    for name in names:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        size = listed[name].bytes if name in listed else found.st_size if name == MANIFEST else -1
        if not (_is_part(name) and stat.S_ISREG(found.st_mode) and found.st_size == size):
            foreign.append(name)
    if foreign:
        raise _foreign(foreign)
    return {name: facts for name, facts in listed.items() if name in names}


def _foreign(names: list[str]) -> CheckpointError:
    return CheckpointError(
        f"the folder holds something else ({_listed(sorted(names))}), which is not replaced by "
        "saved state"
    )


def _is_part(name: str) -> bool:
    """Whether a file of a saved state, finished or not, can have this name."""
    return name in (MANIFEST, _POINTER) or name.startswith(f"{STATE}.")


def _dress(folder: int, mode: int, site: Site) -> None:
    """Copy owner, mode and access list from the folder that is replaced, and from each file."""
    if site.status() is None:
        os.fchmod(folder, mode)
        return
    with site.opened() as old:
        for name in {*os.listdir(old)} & {*os.listdir(folder)}:
            with _file(folder, name) as new_file, _file(old, name) as old_file:
                take_on(new_file, old_file)
        take_on(folder, old)


def _follow(site: Site, replaced: str, folder: int) -> None:
    """If the replaced folder was the current one, change to the new folder."""
    with contextlib.suppress(OSError):  # the current folder may have been removed
        found = site.status(replaced)
        if found is not None and os.path.samestat(found, os.stat(os.curdir)):
            os.fchdir(folder)


def _make_durable(site: Site, path: str) -> None:
    try:
        site.sync()
    except OSError as error:
        raise CheckpointError(
            "the new state is in place, but the disk has not confirmed it, and it may not survive "
            f"a power cut: {_trouble(error, path)}"
        ) from error


def _write_file(folder: int, name: str, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with _file(folder, name, flags) as fd, open(fd, "wb", closefd=False) as file:
        file.write(content)


# -- reading -----------------------------------------------------------------------------------


def _read_manifest(folder: int) -> Manifest:
    try:
        with _file(folder, MANIFEST) as fd, open(fd, "rb", closefd=False) as file:
            size = os.fstat(fd).st_size
            if size > _MOST_MANIFEST_BYTES:
                raise CheckpointError(f"{MANIFEST} is damaged: it has {format_bytes(size)}")
            manifest = msgspec.json.decode(file.read(size + 1), type=Manifest)
    except FileNotFoundError:
        raise CheckpointError(f"a part is missing: {MANIFEST}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(f"{MANIFEST} is damaged: {error}") from None
    if manifest.seal != manifest.sealed().seal:
        raise CheckpointError(f"{MANIFEST} is damaged: its checksum differs")
    if manifest.format > _FORMAT:
        raise CheckpointError(f"it was saved by a newer version, sojourn {manifest.sojourn}")
    return manifest


def _check_file(folder: int, name: str, facts: FileFacts) -> None:
    if os.path.basename(name) != name or not _is_part(name) or "\0" in name:
        raise CheckpointError(f"{MANIFEST} names a file that is none of a state: {name!r}")
    try:
        found = _facts(folder, name, facts.bytes)
    except FileNotFoundError:
        raise CheckpointError(f"a part is missing: {name}") from None
    if found.bytes < facts.bytes:
        raise CheckpointError(f"{name} is truncated: {found.bytes} of {facts.bytes} bytes")
    if found != facts:
        raise CheckpointError(f"{name} is damaged: its checksum differs")


def _facts(folder: int, name: str, most: float = math.inf) -> FileFacts:
    """Size and SHA-256 of a file, or of its beginning if it has more than `most` bytes."""
    digest = hashlib.sha256()
    size = 0
    # Mapped, not malloc'ed: memory that malloc gives a thread stays in that thread's arena, so
    # each thread would keep a chunk.
    with (
        mmap.mmap(-1, _CHUNK_BYTES) as buffer,
        memoryview(buffer) as view,
        _file(folder, name) as fd,
        open(fd, "rb", buffering=0, closefd=False) as file,
    ):
        while size <= most and (count := file.readinto(view)):
            digest.update(view[:count])
            size += count
    return FileFacts(size, digest.hexdigest())


@contextlib.contextmanager
def _file(folder: int, name: str, flags: int = _READ) -> Iterator[int]:
    fd = os.open(name, flags, 0o666, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):  # a link may lead to an endless device
            raise CheckpointError(f"{name} is not a file")
        yield fd
    finally:
        os.close(fd)


# -- errors ------------------------------------------------------------------------------------


def _listed(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


@contextlib.contextmanager
def _explaining(path: str, writing: bool = True) -> Iterator[None]:
    """Raise errors that say what was tried, where, and what kind of trouble occurred."""
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
    """Return TensorFlow's message, in plain words where the disk was the cause."""
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
