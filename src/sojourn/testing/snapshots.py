"""Snapshots: the sessions, processes, threads, descriptors, files and memory at one moment."""

from __future__ import annotations

import ctypes
import gc
import os
import tempfile
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sojourn.probes import processes
from sojourn.process import limits, marks
from sojourn.process.zygote import reap_retired, zygotes
from sojourn.session import totals
from sojourn.testing import ports

# The environment variable that marks a test run. If it is set, all processes started with it are
# counted, even detached ones that other programs started. Its value may have a suffix: `run`,
# `run.part`.
RUN = "SOJOURN_TEST_RUN"
_UNKNOWN = (-1, -1)
Stamp = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The sessions, processes, threads, descriptors, files and memory at one moment."""

    sessions: dict[int, str]  # by their serial numbers: name, and who opened it
    workers: frozenset[int]
    strangers: frozenset[int]  # started by workers, and zombies that the zygote has not reaped
    children: frozenset[int]  # other child processes, and theirs
    descriptors: dict[int, str]  # without those that connect to the zygote
    threads: frozenset[str]
    shared_memory: frozenset[str]
    temporary: Mapping[str, Stamp]  # size and time of each file, if strict
    runtime: Mapping[str, Stamp]
    held_bytes: int  # by this process
    zygote_bytes: int
    zygote_descriptors: int
    zygote_threads: int
    sockets: Mapping[str, int]  # the process by the socket's inode
    zygotes: frozenset[int] = frozenset()
    marked: frozenset[int] = frozenset()  # marked with RUN, and none of the above
    native_threads: Mapping[int, str] = field(default_factory=dict)  # unknown to Python
    is_strict: bool = False


def take_snapshot(*, strict: bool = False) -> Snapshot:
    """Take a snapshot.

    A strict one is for tests that have the process and its temporary folder for themselves: then
    nothing may be left for the garbage collector, no descriptor may have been exchanged for
    another, and files below the folders may be neither removed nor changed. Existing garbage is
    collected first.
    """
    if strict:
        gc.collect()
        give_back()
    return look(strict)


def look(strict: bool) -> Snapshot:
    """Take a snapshot without collecting garbage first. Only reaps zygotes that ended before."""
    reap_retired()
    me = os.getpid()
    found = processes.of_client(me)
    zygotes = {f.pid for f in found if f.is_zygote}
    workers = {f.pid for f in found if not f.is_zygote}
    below_zygotes = {pid for one in zygotes for pid in limits.descendants(one)}
    ours = {me, *zygotes, *workers}
    strangers = below_zygotes.union(marks.processes_with(marks.of_client())) - ours
    children = set(limits.descendants(me)) - ours - strangers
    marked = set(_marked()) - ours - strangers - children
    return Snapshot(
        sessions={s.serial: _described(s.identity) for s in totals.now()[1]},
        workers=frozenset(workers),
        strangers=frozenset(strangers),
        children=frozenset(children),
        descriptors=_descriptors(),
        threads=frozenset(f"{t.name} ({t.ident})" for t in threading.enumerate()),
        shared_memory=frozenset(_listed("/dev/shm")),
        temporary=_files(tempfile.gettempdir(), strict),
        runtime=_files(runtime_folder(), strict),
        held_bytes=held_bytes([me]),
        zygote_bytes=held_bytes(zygotes),
        zygote_descriptors=sum(len(_listed(f"/proc/{pid}/fd")) for pid in zygotes),
        zygote_threads=sum(len(_listed(f"/proc/{pid}/task")) for pid in zygotes),
        sockets=ports.sockets({*ours, *strangers, *children, *marked}),
        zygotes=frozenset(zygotes),
        marked=frozenset(marked),
        native_threads=_native_threads(),
        is_strict=strict,
    )


def held_bytes(pids: Iterable[int]) -> int:
    """Return the memory of these processes that no file backs, including nameless segments.

    A segment that is both mapped and open is counted twice, and so cannot hide another; the number
    only serves to detect growth. It comes from the kernel's counters: walking the page tables is
    exact, but takes longer than the whole rest of a snapshot.
    """
    return sum(_resident_bytes(pid) + _open_segments(pid) for pid in pids)


def counting_error() -> int:
    """Return the error of the kernel's counters: each processor counts some pages on its own."""
    processors = os.cpu_count() or 1
    return processors * max(32, 2 * processors) * os.sysconf("SC_PAGE_SIZE")


def give_back() -> None:
    """Make the C library return freed memory to the system: memory it keeps is not a leak."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except AttributeError:
        pass  # another C library


def runtime_folder() -> str:
    """Return the folder for the sockets and files of running programs."""
    return os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"


def _described(identity: Mapping[str, object]) -> str:
    return f"{identity['name']!r}, opened at {identity['owner']},"


def _marked() -> list[int]:
    run = os.environ.get(RUN)
    return processes.started_with(RUN, run) if run else []


def _descriptors() -> dict[int, str]:
    # A zygote may be replaced, and its descriptors with it: leave them out.
    spared: set[int] = set()
    for running in (one._running for one in zygotes.values()):
        if running is not None:
            spared |= {running.channel.fileno(), running.pidfd, running.errors.fd}
    found = {}
    for name in _listed("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            pass  # the descriptor of the listing itself
    return {fd: to for fd, to in found.items() if fd not in spared}


def _native_threads() -> dict[int, str]:
    known = {thread.native_id for thread in threading.enumerate()}
    found = {}
    for task in map(int, _listed("/proc/self/task")):
        if task not in known:
            try:
                with open(f"/proc/self/task/{task}/comm") as name:
                    found[task] = name.read().strip()
            except OSError:
                pass  # the thread has ended
    return found


def _files(folder: str, strict: bool) -> dict[str, Stamp]:
    if not strict:
        return dict.fromkeys(_listed(folder), _UNKNOWN)
    found: dict[str, Stamp] = {}
    for parent, folders, names in os.walk(folder):
        # Without pytest's own folders for tmp_path, which belong to the tests.
        folders[:] = [name for name in folders if not name.startswith("pytest-of-")]
        within = os.path.relpath(parent, folder)
        found.update({os.path.normpath(os.path.join(within, name)): _UNKNOWN for name in folders})
        for name in names:
            try:
                status = os.lstat(os.path.join(parent, name))
            except OSError:
                continue  # gone meanwhile
            stamp = status.st_size, status.st_mtime_ns
            found[os.path.normpath(os.path.join(within, name))] = stamp
    return found


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            counters = [
                line.split() for line in status if line.startswith((b"RssAnon", b"RssShmem"))
            ]
    except OSError:
        return 0  # the process has ended
    return sum(int(number) * 1024 for _, number, _ in counters)


def _open_segments(pid: int) -> int:
    sizes: dict[int, int] = {}
    for name in _listed(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{name}"
        try:
            if os.readlink(path).startswith("/memfd:"):
                found = os.stat(path)
                sizes[found.st_ino] = found.st_blocks * 512
        except OSError:
            pass  # closed meanwhile
    return sum(sizes.values())
