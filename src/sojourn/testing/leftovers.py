"""What a piece of code leaves behind in this process and around it.

Take a snapshot before, ask `leftovers` after. A difference is looked at again for a short while
before it is called a leak: threads that have ended take a moment to be gone.
"""

from __future__ import annotations

import ctypes
import gc
import os
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from sojourn.probes import memory, processes
from sojourn.process import limits, marks
from sojourn.session import totals
from sojourn.testing import ports


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is there at one moment."""

    sessions: dict[int, str]  # by their serial numbers: name, and who opened it
    workers: frozenset[int]
    strangers: frozenset[int]  # what workers have started, and zombies that the zygote has not seen
    children: frozenset[int]
    descriptors: dict[int, str]
    threads: frozenset[str]
    shared_memory: frozenset[str]
    temporary: frozenset[str]
    runtime: frozenset[str]
    held_bytes: int  # by this process
    zygote_bytes: int
    zygote_descriptors: int
    zygote_threads: int
    ports: frozenset[str]


def take_snapshot() -> Snapshot:
    """Look around."""
    found = processes.of_client(os.getpid())
    zygotes = {f.pid for f in found if f.is_zygote}
    workers = {f.pid for f in found if not f.is_zygote}
    ours = {os.getpid(), *zygotes, *workers}
    below = {pid for zygote in zygotes for pid in limits.descendants(zygote)}
    return Snapshot(
        sessions={s.serial: _described(s.identity) for s in totals.now()[1]},
        workers=frozenset(workers),
        strangers=frozenset(below.union(marks.wearers(marks.of_client())) - ours),
        children=frozenset(limits.children(os.getpid())) - zygotes,
        descriptors=_descriptors(),
        threads=frozenset(f"{t.name} ({t.ident})" for t in threading.enumerate()),
        shared_memory=frozenset(_listed("/dev/shm")),
        temporary=frozenset(_listed(tempfile.gettempdir())),
        runtime=frozenset(_listed(_runtime_folder())),
        held_bytes=_held(os.getpid()),
        zygote_bytes=sum(map(_held, zygotes)),
        zygote_descriptors=sum(len(_listed(f"/proc/{pid}/fd")) for pid in zygotes),
        zygote_threads=sum(len(_listed(f"/proc/{pid}/task")) for pid in zygotes),
        ports=ports.listening([os.getpid(), *(f.pid for f in found)]),
    )


def leftovers(
    before: Snapshot,
    *,
    seconds: float = 2.0,
    growth_bytes: int | None = None,
    temporary_folder: bool = True,
) -> list[str]:
    """What is there now and was not there before, a sentence each. Empty is good.

    With `growth_bytes`, the memory of this process and its zygote, private and shared, may have
    grown by no more. Leave the `temporary_folder` out, and with it that for things of a running
    program (XDG_RUNTIME_DIR), where other programs use it too.
    """
    deadline = time.monotonic() + seconds
    while True:
        found = _compare(before, take_snapshot(), growth_bytes, temporary_folder)
        if not found or time.monotonic() > deadline:
            return found
        gc.collect()
        _trim()
        time.sleep(0.02)


def _compare(
    before: Snapshot, after: Snapshot, growth_bytes: int | None, temporary_folder: bool
) -> list[str]:
    open_still = sorted(after.sessions.keys() - before.sessions.keys())
    found = [f"session {after.sessions[serial]} is open" for serial in open_still]
    found += [f"worker process {pid} is left" for pid in sorted(after.workers - before.workers)]
    new_strangers = sorted(after.strangers - before.strangers)
    found += [
        f"process {pid} that a worker started is left, or its zombie" for pid in new_strangers
    ]
    found += [f"child process {pid} is left" for pid in sorted(after.children - before.children)]
    new = {fd: to for fd, to in after.descriptors.items() if before.descriptors.get(fd) != to}
    if len(after.descriptors) > len(before.descriptors):
        found.append(f"descriptors are left: {new}")
    found += [f"thread {name} is left" for name in sorted(after.threads - before.threads)]
    new_shared = _without_those_of_others(after.shared_memory - before.shared_memory)
    found += [f"{name} is left in /dev/shm" for name in new_shared]
    if temporary_folder:
        new_files = sorted(after.temporary - before.temporary)
        found += [f"{name} is left in the temporary folder" for name in new_files]
        new_files = sorted(after.runtime - before.runtime)
        found += [f"{name} is left in the runtime folder" for name in new_files]
    # A zygote that was replaced starts anew; one that stayed must not collect descriptors.
    if 0 < before.zygote_descriptors < after.zygote_descriptors:
        found.append(
            f"the zygote has {after.zygote_descriptors} descriptors, "
            f"it had {before.zygote_descriptors}"
        )
    if 0 < before.zygote_threads < after.zygote_threads:
        found.append(f"the zygote has {after.zygote_threads} threads")
    found += [f"somebody listens: {port}" for port in sorted(after.ports - before.ports)]
    grown = after.held_bytes - before.held_bytes
    zygote_grown = after.zygote_bytes - before.zygote_bytes
    if growth_bytes is not None and grown + zygote_grown > growth_bytes:
        found.append(
            f"memory has grown by {grown + zygote_grown} bytes, the zygote's by {zygote_grown}"
        )
    return found


def _runtime_folder() -> str:
    return os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"


def _described(identity: Mapping[str, object]) -> str:
    return f"{identity['name']!r}, opened at {identity['owner']},"


def _without_those_of_others(names: frozenset[str]) -> list[str]:
    """Leave out the segments that a process beside us has mapped: they are not ours to judge."""
    suspects = {name.encode(): name for name in names}
    ours = {os.getpid(), *limits.children(os.getpid())}
    for entry in _listed("/proc") if suspects else ():
        if not entry.isdigit() or int(entry) in ours:
            continue
        try:
            with open(f"/proc/{entry}/maps", "rb") as maps:
                mapped = {line.partition(b"/dev/shm/")[2].rstrip() for line in maps}
        except OSError:
            continue  # another user's, or it has ended
        for name in mapped:
            suspects.pop(name, None)
    return sorted(suspects.values())


def _trim() -> None:
    """Have the C library give back what was freed: it is no leak, only a habit."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except AttributeError:
        pass  # another C library


def _descriptors() -> dict[int, str]:
    found = {}
    for name in _listed("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            pass  # the listing's own
    return found


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _held(pid: int) -> int:
    """Memory that is backed by no file, nameless segments included, mapped or only open."""
    reading = memory.of_process(pid)
    if reading is None:
        return 0
    return reading.anonymous_bytes + max(reading.shared_memory_bytes, _open_segments(pid))


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
