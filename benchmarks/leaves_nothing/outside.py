"""What a tree of processes holds, seen from outside, as the kernel counts it.

The suite is a subreaper: every process that an owner starts, even in a session of its own or
orphaned, stays a descendant of the suite. So the tree is complete without asking anyone.
"""

from __future__ import annotations

import ctypes
import os
import signal
import stat
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SHARED_MEMORY = Path("/dev/shm")

_PR_SET_CHILD_SUBREAPER = 36
_CLONE_NEWNS, _MS_REC, _MS_PRIVATE = 0x20000, 0x4000, 0x40000
_LISTENING = "0A"


@dataclass(frozen=True)
class Reading:
    """One measurement. Bytes are anonymous and shared memory; the tree counts a page once."""

    memory_bytes: int = 0
    processes: int = 0
    descriptors: int = 0
    ports: int = 0
    shared_files: int = 0  # names in /dev/shm
    files: int = 0  # in the temporary folder
    file_bytes: int = 0

    def __sub__(self, other: Reading) -> Reading:
        mine, theirs = asdict(self), asdict(other)
        return Reading(**{name: mine[name] - theirs[name] for name in mine})

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def become_subreaper() -> None:
    """Make this process the parent of all orphans below it from now on."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become a subreaper")


def have_own_shared_memory() -> bool:
    """Mount an empty /dev/shm that only this process and its descendants see. False if not allowed.

    Without it, names that other programs create in /dev/shm meanwhile count as leftovers.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    return (
        os.geteuid() == 0
        and libc.unshare(_CLONE_NEWNS) == 0
        and libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None) == 0
        and libc.mount(b"tmpfs", bytes(SHARED_MEMORY), b"tmpfs", 0, b"mode=1777") == 0
    )


def look(temporary: Path) -> Reading:
    """Measure all processes below this one, and the files around them."""
    pids = descendants()
    memory = [_memory_of(pid) for pid in pids]
    shared_files = list(_files(SHARED_MEMORY))
    files = list(_files(temporary))
    # A mapped file in /dev/shm is in both figures, an unmapped one only in the second.
    shared = max(sum(m[1] for m in memory), sum(size for _, size in shared_files))
    return Reading(
        memory_bytes=sum(m[0] for m in memory) + shared,
        processes=len(pids),
        descriptors=sum(len(_listed(f"/proc/{pid}/fd")) for pid in pids),
        ports=sum(map(_ports_of, pids)),
        shared_files=len(shared_files),
        files=len(files),
        file_bytes=sum(size for _, size in files),
    )


def descendants() -> list[int]:
    """Return all processes below this one, including zombies that nobody has waited for."""
    _reap_orphans()
    children: dict[int, list[int]] = {}
    for entry in _listed("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue  # it has just ended
            children.setdefault(int(fields[1]), []).append(int(entry))
    found: list[int] = []
    unseen = [os.getpid()]
    while unseen:
        below = children.get(unseen.pop(), [])
        found += below
        unseen += below
    return sorted(found)


def titles() -> list[str]:
    """Return the command lines of the processes below this one, shortened."""
    found = []
    for pid in descendants():
        try:
            program, *words = Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")
            program = os.path.basename(program) or Path(f"/proc/{pid}/comm").read_text().strip()
            found.append(" ".join([program, *words])[:80])
        except OSError:
            continue  # it has just ended
    return found


def names(temporary: Path, most: int = 12) -> list[str]:
    """Return some of the files in the temporary folder and in /dev/shm."""
    found = [os.path.relpath(path, temporary) for path, _ in _files(temporary)]
    found += [path for path, _ in _files(SHARED_MEMORY)]
    return found[:most]


def end_all(seconds: float = 30.0) -> None:
    """Kill every process below this one, and wait until all have ended."""
    deadline = time.monotonic() + seconds
    while left := descendants():
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes cannot be ended: {left}")
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)


def _reap_orphans() -> None:
    """Reap orphans that have ended: they are this process's task, and not the fault of a system."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


def _memory_of(pid: int) -> tuple[int, int]:
    """Return anonymous and shared bytes; a page with several users is divided among them."""
    anonymous = shared = 0
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0, 0  # a zombie has no memory
    for line in lines:
        name, _, rest = line.partition(":")
        if name in ("Pss_Anon", "SwapPss"):
            anonymous += int(rest.split()[0]) * 1024
        elif name == "Pss_Shmem":
            shared += int(rest.split()[0]) * 1024
    return anonymous, shared


def _ports_of(pid: int) -> int:
    """Return the number of ports that a process listens on."""
    inodes = set()
    for number in _listed(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{number}")
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    ports = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTENING and fields[9] in inodes:
                ports.add(fields[1].rpartition(":")[2])
    return len(ports)


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield every file below a folder, with the bytes on disk."""
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            try:
                status = os.lstat(path)
            except OSError:
                continue
            yield path, status.st_blocks * 512 if stat.S_ISREG(status.st_mode) else 0


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
