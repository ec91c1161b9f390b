"""What is there at one moment, in this process and around it."""

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

# With this set in the environment, all processes that were started with it are counted, however
# they were detached, by any program. Its value may be continued: `run`, `run.part`.
RUN = "SOJOURN_TEST_RUN"
_UNKNOWN = (-1, -1)
Stamp = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is there at one moment."""

    sessions: dict[int, str]  # by their serial numbers: name, and who opened it
    workers: frozenset[int]
    strangers: frozenset[int]  # what workers have started, and zombies that the zygote has not seen
    children: frozenset[int]  # and theirs
    descriptors: dict[int, str]  # but those that we hold the zygote by
    threads: frozenset[str]
    shared_memory: frozenset[str]
    temporary: Mapping[str, Stamp]  # what was written where, if it was looked at strictly
    runtime: Mapping[str, Stamp]
    held_bytes: int  # by this process
    zygote_bytes: int
    zygote_descriptors: int
    zygote_threads: int
    sockets: Mapping[str, int]  # by their inodes, whose
    zygotes: frozenset[int] = frozenset()
    marked: frozenset[int] = frozenset()  # started with the mark of this run, and none of the above
    native_threads: Mapping[int, str] = field(default_factory=dict)  # that Python knows nothing of
    is_strict: bool = False


def take_snapshot(*, strict: bool = False) -> Snapshot:
    """Look around.

    A strict look is for those who have the process and its temporary folder for themselves: then
    nothing may be left that only the garbage collector would find, no descriptor may have been
    exchanged for another, and files below the folders may be neither removed nor changed. What is
    garbage already goes first.
    """
    if strict:
        gc.collect()
        give_back()
    return look(strict)


def look(strict: bool) -> Snapshot:
    """The same, but nothing is cleaned up before, but for zygotes that have ended long ago."""
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
    """Memory of these processes that is backed by no file, nameless segments included.

    A segment that is both mapped and open is counted twice, and so cannot hide another; what is
    asked of this number is only whether it grows. It comes from the kernel's counters: walking the
    page tables is exact, but takes longer than all the rest of a look.
    """
    return sum(_resident_bytes(pid) + _open_segments(pid) for pid in pids)


def counting_error() -> int:
    """By how much the kernel's counters may be wrong: each processor keeps some of the pages."""
    processors = os.cpu_count() or 1
    return processors * max(32, 2 * processors) * os.sysconf("SC_PAGE_SIZE")


def give_back() -> None:
    """Have the C library return freed memory to the system: keeping it is not a leak."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except AttributeError:
        pass  # another C library


def runtime_folder() -> str:
    """Where programs that run keep their things."""
    return os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"


def _described(identity: Mapping[str, object]) -> str:
    return f"{identity['name']!r}, opened at {identity['owner']},"


def _marked() -> list[int]:
    run = os.environ.get(RUN)
    return processes.started_with(RUN, run) if run else []


def _descriptors() -> dict[int, str]:
    # Each may be replaced by another, as good as the first: these come and go with it.
    spared: set[int] = set()
    for running in (one._running for one in zygotes.values()):
        if running is not None:
            spared |= {running.channel.fileno(), running.pidfd, running.errors.fd}
    found = {}
    for name in _listed("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            pass  # the listing's own
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
                pass  # it has ended
    return found


def _files(folder: str, strict: bool) -> dict[str, Stamp]:
    if not strict:
        return dict.fromkeys(_listed(folder), _UNKNOWN)
    found: dict[str, Stamp] = {}
    for parent, folders, names in os.walk(folder):
        # pytest's own for tmp_path, where the tests do as they like.
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
        return 0  # it has ended
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
