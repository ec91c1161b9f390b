"""Replace one folder by another atomically, while other processes read either of them.

All names are looked up in the parent folder, which is held by descriptor, so that neither the
length of a path nor the characters in it matter.

A process that writes or reads a folder holds a shared lock on it. A folder is removed only under an
exclusive lock: the folder stays until its reader has finished, and the reader then removes it if it
was replaced. No name is trusted: in a folder that is named like ours, only files that are named
like ours are removed.
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
_BETWEEN_SECONDS = 5.0  # most time to wait for a folder between two renames, which take far less


@contextlib.contextmanager
def site_of(path: str, is_part: Callable[[str], bool], reading: bool = False) -> Iterator[Site]:
    """Provide the site at `path`. `is_part` tells whether a file of a name may be one of ours."""
    above, name = os.path.split(path)
    try:
        fd = os.open(above, _FOLDER)
    except PermissionError:
        if not reading or not hasattr(os, "O_PATH"):
            raise
        fd = os.open(above, _FOLDER | os.O_PATH)  # search permission, no read permission
    try:
        yield Site(name, fd, is_part)
    finally:
        os.close(fd)


class Site:
    """A name in a parent folder, at which a folder may or may not exist."""

    def __init__(self, name: str, above: int, is_part: Callable[[str], bool]) -> None:
        self._name = name
        self._above = above
        self._is_part = is_part

    # -- looking -------------------------------------------------------------------------------

    def status(self, name: str | None = None) -> os.stat_result | None:
        """The status of the site, or of this name in the same parent; None if nothing exists."""
        try:
            return os.stat(name or self._name, dir_fd=self._above, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def holds(self, fd: int) -> bool:
        """Whether the folder at the site is the one of this descriptor."""
        return self._is_named(self._name, fd)

    def _is_named(self, name: str, fd: int) -> bool:
        found = self.status(name)
        return found is not None and os.path.samestat(found, os.fstat(fd))

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """Open the folder at the site; it stays readable until the block ends, even if replaced."""
        until = time.monotonic() + _BETWEEN_SECONDS
        while True:
            with self._there(until) as fd:
                _lock(fd)
                if not self.holds(fd):
                    continue  # replaced between open and lock, and perhaps half removed already
                try:
                    yield fd
                finally:
                    with contextlib.suppress(OSError):  # we may have read permission only
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
                # A save is between its two renames, or was killed there. With many saves, this
                # check itself may fall between: only a folder that is missed twice does not exist.
                is_missed = not self._beside(_REPLACED) and self.status() is None
                if (is_missed and was_missed) or time.monotonic() >= until:
                    raise
                was_missed = is_missed
            time.sleep(0.001)
            self.settle()

    # -- replacing -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def prepared(self) -> Iterator[tuple[str, int]]:
        """Make a folder beside the site; yield its name and descriptor. Whatever folder has that
        name when the block ends is removed."""
        while True:
            name, fd = hidden(self._name, _SAVING), -1
            try:
                os.mkdir(name, dir_fd=self._above)
                try:
                    fd = os.open(name, _FOLDER, dir_fd=self._above)
                except FileNotFoundError:
                    continue  # another process took it for a leftover and removed it: try again
                if not _lock(fd) or name not in os.listdir(self._above):
                    continue
                yield name, fd
                return
            finally:
                if fd >= 0:
                    os.close(fd)  # and the lock with it
                self._remove(name)

    def put(self, name: str, check: Callable[[int], object]) -> None:
        """Put the prepared folder in place. The previous folder gets its name and is checked: if
        the check raises, both are swapped back."""
        if self.status() is None:
            try:
                self._rename(name, self._name)
                return
            except OSError:
                if self.status() is None:
                    raise
                # Another process has put a folder there first.
        with _opened(self._name, self._above) as old:
            _lock(old)  # else a process that settles the site would remove it during the check
            self._swap(name)
            try:
                if self._is_named(name, old):  # else another save swapped first: we got its folder
                    check(old)  # again, because a file may have been put there meanwhile
            except BaseException:
                self._swap(name)
                raise

    def sync(self) -> None:
        """Flush the parent folder, so that the name is on the disk."""
        os.fsync(self._above)

    def settle(self) -> None:
        """Remove the leftovers of killed saves; bring back a folder that one had set aside."""
        for name in self._beside(_REPLACED):
            with contextlib.suppress(FileNotFoundError), self._unused(name, True) as fd:
                if fd >= 0 and self.status() is None:
                    self._rename(name, self._name)
        for name in (*self._beside(_REPLACED), *self._beside(_SAVING)):
            self._remove(name, may_lack_locks=False)

    def _swap(self, name: str) -> None:
        if _exchange(self._above, name, self._name):
            return
        # The file system cannot exchange names. If this process is killed between the renames,
        # `settle` brings the old folder back.
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
        """Remove a folder of ours, unless it is in use or other files are in it."""
        with contextlib.suppress(OSError), self._unused(name, may_lack_locks) as fd:
            if fd < 0:
                return  # the process that still uses it removes it
            if name.startswith(hidden(self._name, _REPLACED, "")) and self.status() is None:
                return  # the site is empty: this is the only copy
            remove_parts(fd, self._is_part)
            os.rmdir(name, dir_fd=self._above)

    @contextlib.contextmanager
    def _unused(self, name: str, may_lack_locks: bool) -> Iterator[int]:
        """Open and lock the folder of this name beside the site; -1 if it is in use or renamed."""
        with _opened(name, self._above) as fd:
            is_ours = True
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                is_ours = False
            except OSError:
                is_ours = may_lack_locks
            # Between open and lock, the folder may have been put in place under the site's name.
            yield fd if is_ours and self._is_named(name, fd) else -1

    def _beside(self, role: str) -> list[str]:
        beginning = hidden(self._name, role, "")
        try:
            names = os.listdir(self._above)
        except OSError:
            return []  # we have search permission only
        return [name for name in names if name.startswith(beginning)]


def make_folders(path: str) -> None:
    """Make a folder and its missing parents, and flush them to the disk."""
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
    """Return a hidden name beside `name`, for a folder that has a role in replacing it."""
    # A digest, since its length is fixed: `name` may already be as long as names can be.
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
    return f".sojourn-{digest}.{role}-{secrets.token_hex(8) if suffix is None else suffix}"


def remove_parts(fd: int, is_part: Callable[[str], bool]) -> None:
    """Remove the files of a folder that are named like ours, as far as permissions allow."""
    with contextlib.suppress(OSError):
        os.fchmod(fd, stat.S_IRWXU)
    for part in filter(is_part, os.listdir(fd)):
        with contextlib.suppress(OSError):
            os.unlink(part, dir_fd=fd)


def take_on(fd: int, old: int) -> None:
    """Give a file or folder the owner, mode and access list of the one it is to replace."""
    before = os.fstat(old)
    for owner, group in ((-1, before.st_gid), (before.st_uid, -1)):
        with contextlib.suppress(OSError):  # as far as permissions allow
            os.fchown(fd, owner, group)
    for name in {*_attributes(fd)} - {*_attributes(old)}:
        with contextlib.suppress(OSError):
            os.removexattr(fd, name)  # an access list inherited from the parent folder
    for name in _attributes(old):
        with contextlib.suppress(OSError):
            os.setxattr(fd, name, os.getxattr(old, name))
    os.fchmod(fd, stat.S_IMODE(before.st_mode))


def replace_file(path: str, content: bytes) -> None:
    """Replace the content of a file atomically. Owner, mode and access list stay the same."""
    path = os.path.realpath(path)  # a symbolic link is kept
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
        return []  # the file system or the platform has no extended attributes


@contextlib.contextmanager
def _opened(name: str, above: int) -> Iterator[int]:
    fd = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
    try:
        yield fd
    finally:
        os.close(fd)


def _lock(fd: int) -> bool:
    """Take a shared lock, which prevents removal; False if the folder is being removed."""
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
