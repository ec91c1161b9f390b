"""Put one folder in the place of another at once, and let others read either meanwhile.

All names are looked up in the folder above, which is held by descriptor, so that neither the length
of a path nor the characters in it matter.

Who writes or reads a folder holds a shared lock on it. A folder is removed only under an exclusive
one: a reader keeps what it reads until it has finished, and then removes it if it was replaced. No
name is trusted: of a folder that looks like ours, only files that are named like ours are removed.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Callable, Iterator

_SAVING, _REPLACED = "saving", "replaced"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_RENAME_EXCHANGE = 2
_BETWEEN_SECONDS = 5.0  # much longer than two renames take


@contextlib.contextmanager
def site_of(path: str, is_part: Callable[[str], bool], reading: bool = False) -> Iterator[Site]:
    """The place for a folder. `is_part` tells whether a file of this name may be one of ours."""
    above, name = os.path.split(path)
    try:
        fd = os.open(above, _FOLDER)
    except PermissionError:
        if not reading or not hasattr(os, "O_PATH"):
            raise
        fd = os.open(above, _FOLDER | os.O_PATH)  # we may pass through it, and not look into it
    try:
        yield Site(name, fd, is_part)
    finally:
        os.close(fd)


class Site:
    """A place for a folder, whether there is one or not."""

    def __init__(self, name: str, above: int, is_part: Callable[[str], bool]) -> None:
        self._name = name
        self._above = above
        self._is_part = is_part

    # -- looking -------------------------------------------------------------------------------

    def status(self, name: str | None = None) -> os.stat_result | None:
        """Of what is there, or beside it by this name; None if nothing is."""
        try:
            return os.stat(name or self._name, dir_fd=self._above, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def holds(self, fd: int) -> bool:
        """Whether this very folder is there."""
        return self._is_named(self._name, fd)

    def _is_named(self, name: str, fd: int) -> bool:
        found = self.status(name)
        return found is not None and os.path.samestat(found, os.fstat(fd))

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """The folder that is there; it stays readable until the end, whatever takes its place."""
        until = time.monotonic() + _BETWEEN_SECONDS
        while True:
            with self._there(until) as fd:
                _lock(fd)
                if not self.holds(fd):
                    continue  # replaced between the two, and perhaps half removed already
                try:
                    yield fd
                finally:
                    with contextlib.suppress(OSError):  # we may be allowed to read only
                        fcntl.flock(fd, fcntl.LOCK_UN)
                        if not self.holds(fd):
                            self.settle()
                return

    @contextlib.contextmanager
    def _there(self, until: float) -> Iterator[int]:
        fd = self._open(until)
        try:
            yield fd
        finally:
            os.close(fd)

    def _open(self, until: float) -> int:
        was_missed = False
        while True:
            try:
                return os.open(self._name, _FOLDER | os.O_NOFOLLOW, dir_fd=self._above)
            except FileNotFoundError:
                # Between two renames of a save, or that save was killed there. With many saves the
                # look itself may fall between: only what is missed twice is not there.
                is_missed = not self._beside(_REPLACED) and self.status() is None
                if (is_missed and was_missed) or time.monotonic() >= until:
                    raise
                was_missed = is_missed
            time.sleep(0.001)
            self.settle()

    # -- replacing -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def prepared(self) -> Iterator[tuple[str, int]]:
        """The name and descriptor of a new folder beside it. What has that name at the end goes."""
        while True:
            name, fd = hidden(self._name, _SAVING), -1
            try:
                os.mkdir(name, dir_fd=self._above)
                try:
                    fd = os.open(name, _FOLDER, dir_fd=self._above)
                except FileNotFoundError:
                    continue  # another process took it for a leftover: once more
                if not _lock(fd) or name not in os.listdir(self._above):
                    continue
                yield name, fd
                return
            finally:
                if fd >= 0:
                    os.close(fd)  # and the lock with it
                self._remove(name)

    def put(self, name: str, check: Callable[[int], object]) -> None:
        """Put the prepared folder in place. What was there has its name then, and is checked: if
        that raises, everything is as it was."""
        if self.status() is None:
            try:
                self._rename(name, self._name)
                return
            except OSError:
                if self.status() is None:
                    raise
                # Another process was faster.
        with _opened(self._name, self._above) as old:
            _lock(old)  # else who settles the site would remove it while it is checked
            self._swap(name)
            try:
                if self._is_named(name, old):  # else another save was faster, and this is its own
                    check(old)  # again: something may have been put there meanwhile
            except BaseException:
                self._swap(name)
                raise

    def sync(self) -> None:
        """Have the name on the disk."""
        os.fsync(self._above)

    def settle(self) -> None:
        """Remove what killed saves have left beside it; bring back what one had set aside."""
        for name in self._beside(_REPLACED):
            with contextlib.suppress(FileNotFoundError), self._unused(name, True) as fd:
                if fd >= 0 and self.status() is None:
                    self._rename(name, self._name)
        for name in (*self._beside(_REPLACED), *self._beside(_SAVING)):
            self._remove(name, may_lack_locks=False)

    def _swap(self, name: str) -> None:
        if _exchange(self._above, name, self._name):
            return
        # A file system that cannot exchange. Killed in between, `settle` brings the old one back.
        aside = hidden(self._name, _REPLACED)
        with _opened(self._name, self._above) as fd:
            _lock(fd)
            self._rename(self._name, aside)
            try:
                self._rename(name, self._name)
            except BaseException:
                self._rename(aside, self._name)
                raise
            self._rename(aside, name)

    def _rename(self, one: str, other: str) -> None:
        os.rename(one, other, src_dir_fd=self._above, dst_dir_fd=self._above)

    def _remove(self, name: str, may_lack_locks: bool = True) -> None:
        """Remove a folder of ours, unless it is in use or something else is in it."""
        with contextlib.suppress(OSError), self._unused(name, may_lack_locks) as fd:
            if fd < 0:
                return  # who still uses it removes it
            if name.startswith(hidden(self._name, _REPLACED, "")) and self.status() is None:
                return  # it is all there is
            remove_parts(fd, self._is_part)
            os.rmdir(name, dir_fd=self._above)

    @contextlib.contextmanager
    def _unused(self, name: str, may_lack_locks: bool) -> Iterator[int]:
        """The folder beside it by this name, unless it is written, read or renamed; else -1."""
        with _opened(name, self._above) as fd:
            is_ours = True
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                is_ours = False
            except OSError:
                is_ours = may_lack_locks
            # What had this name when it was opened may have been put in place before the lock.
            yield fd if is_ours and self._is_named(name, fd) else -1

    def _beside(self, role: str) -> list[str]:
        beginning = hidden(self._name, role, "")
        try:
            names = os.listdir(self._above)
        except OSError:
            return []  # it may only be passed through
        return [name for name in names if name.startswith(beginning)]


def make_folders(path: str) -> None:
    """Make a folder and those above it, as far as they are missing, and have them on the disk."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    make_folders(above)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
    fd = os.open(above, _FOLDER)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def hidden(name: str, role: str, suffix: str | None = None) -> str:
    """A name beside this one, for a folder that has a role in replacing it."""
    # Of the same length for every name: the name itself may be as long as names can be.
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
    return f".sojourn-{digest}.{role}-{secrets.token_hex(8) if suffix is None else suffix}"


def remove_parts(fd: int, is_part: Callable[[str], bool]) -> None:
    """Remove the files of a folder that are named like ours, as far as we may."""
    with contextlib.suppress(OSError):
        os.fchmod(fd, stat.S_IRWXU)
    for part in filter(is_part, os.listdir(fd)):
        with contextlib.suppress(OSError):
            os.unlink(part, dir_fd=fd)


def take_on(fd: int, old: int) -> None:
    """Give a file or folder the owner, mode and access list of the one it is to replace."""
    before = os.fstat(old)
    for owner, group in ((-1, before.st_gid), (before.st_uid, -1)):
        with contextlib.suppress(OSError):  # as far as we may
            os.fchown(fd, owner, group)
    for name in {*_attributes(fd)} - {*_attributes(old)}:
        with contextlib.suppress(OSError):
            os.removexattr(fd, name)  # a list that it has from the folder above
    for name in _attributes(old):
        with contextlib.suppress(OSError):
            os.setxattr(fd, name, os.getxattr(old, name))
    os.fchmod(fd, stat.S_IMODE(before.st_mode))


def replace_file(path: str, content: bytes) -> None:
    """Give a file another content, whole or not at all. Who may read it stays the same."""
    path = os.path.realpath(path)  # a link stays
    fd, fresh = tempfile.mkstemp(prefix=".sojourn-", dir=os.path.dirname(path))
    try:
        with open(fd, "wb") as file, open(path, "rb") as old:
            file.write(content)
            file.flush()
            take_on(fd, old.fileno())
            os.fsync(fd)
        os.replace(fresh, path)
    except BaseException:
        os.unlink(fresh)
        raise


def _attributes(fd: int) -> list[str]:
    try:
        return os.listxattr(fd)
    except (OSError, AttributeError):
        return []  # a file system, or a system, without


@contextlib.contextmanager
def _opened(name: str, above: int) -> Iterator[int]:
    fd = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
    try:
        yield fd
    finally:
        os.close(fd)


def _lock(fd: int) -> bool:
    """Keep it from being removed; False if it is just being removed."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without locks
    return True


def _exchange(above: int, one: str, other: str) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        return False
    status = libc.renameat2(above, os.fsencode(one), above, os.fsencode(other), _RENAME_EXCHANGE)
    number = ctypes.get_errno()
    if status == 0:
        return True
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), other)
