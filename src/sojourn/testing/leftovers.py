"""The check for what a piece of code leaves behind, in this process and around it.

Take a snapshot before, call `leftovers` after. A difference is checked again for a short time
before it counts as a leak: threads that have ended take a moment to disappear.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping

from sojourn.probes import processes
from sojourn.process import limits
from sojourn.process.zygote import zygotes
from sojourn.testing import ports, snapshots
from sojourn.testing.snapshots import Snapshot, Stamp


def leftovers(
    before: Snapshot,
    *,
    seconds: float = 2.0,
    growth_bytes: int | None = None,
    temporary_folder: bool = True,
) -> list[str]:
    """Return what exists now and did not before, a sentence each. Empty is good.

    With `growth_bytes`, the memory of this process and its zygote, private and shared, may have
    grown by no more than that; with a strict snapshot also no native threads unknown to Python may
    be new. Do not pass it where a framework that runs in this process grows arbitrarily. Pass
    `temporary_folder=False` where other programs use that folder or the runtime folder
    (XDG_RUNTIME_DIR) too: then both are ignored.
    """
    deadline = time.monotonic() + seconds
    with _no_collection() if before.is_strict else contextlib.nullcontext():
        while True:
            after = snapshots.look(before.is_strict)
            found = _compare(before, after, temporary_folder)
            if before.is_strict and growth_bytes is not None:
                new_tasks = sorted(after.native_threads.keys() - before.native_threads.keys())
                found += [
                    f"native thread {task} ({after.native_threads[task]}) is left"
                    for task in new_tasks
                ]
            if not found or time.monotonic() > deadline:
                break
            if not before.is_strict:
                gc.collect()
            time.sleep(0.02)
    if growth_bytes is not None:
        found += _growth(before, after, growth_bytes, deadline)
    return found


def _compare(before: Snapshot, after: Snapshot, temporary_folder: bool) -> list[str]:
    open_still = sorted(after.sessions.keys() - before.sessions.keys())
    found = [f"session {after.sessions[serial]} is open" for serial in open_still]
    found += [f"worker process {pid} is left" for pid in sorted(after.workers - before.workers)]
    new_strangers = sorted(after.strangers - before.strangers)
    found += [
        f"process {pid} that a worker started is left, or its zombie" for pid in new_strangers
    ]
    found += [f"child process {pid} is left" for pid in sorted(after.children - before.children)]
    found += [
        f"process {pid} that a program of this run started is left"
        for pid in sorted(after.marked - before.marked)
    ]
    known = sum(zygote.pid is not None for zygote in zygotes.values())  # one for each framework
    if len(after.zygotes) > max(1, known, len(before.zygotes)):
        found.append(f"a zygote beside another is left: {sorted(after.zygotes)}")
    new = {fd: to for fd, to in after.descriptors.items() if before.descriptors.get(fd) != to}
    if before.is_strict:
        # A descriptor that was moved to another number is no leak; one that refers to another
        # file than before, under the same number, is.
        more = Counter(after.descriptors.values()) - Counter(before.descriptors.values())
        new = {fd: to for fd, to in new.items() if to in more}
    elif len(after.descriptors) <= len(before.descriptors):
        new = {}
    if new:
        found.append(f"descriptors are left: {new}")
    found += [f"thread {name} is left" for name in sorted(after.threads - before.threads)]
    new_shared = _without_those_of_others(after.shared_memory - before.shared_memory)
    found += [f"{name} is left in /dev/shm" for name in new_shared]
    if temporary_folder:
        found += _changed("the temporary folder", before.temporary, after.temporary)
        found += _changed("the runtime folder", before.runtime, after.runtime)
        if before.is_strict:
            found += _removed("the temporary folder", before.temporary, after.temporary)
            found += _removed("the runtime folder", before.runtime, after.runtime)
    # A replaced zygote starts anew; one that stayed must not accumulate descriptors. If a zygote
    # for another framework was added, the numbers cannot be compared.
    is_comparable = len(after.zygotes) <= len(before.zygotes)
    if is_comparable and before.zygote_descriptors < after.zygote_descriptors:
        found.append(
            f"the zygote has {after.zygote_descriptors} descriptors, "
            f"it had {before.zygote_descriptors}"
        )
    if is_comparable and before.zygote_threads < after.zygote_threads:
        found.append(f"the zygote has {after.zygote_threads} threads")
    new_sockets = {i: pid for i, pid in after.sockets.items() if i not in before.sockets}
    open_ports = ports.listening(new_sockets) if new_sockets else []
    return found + [f"a port is open: {port}" for port in open_ports]


def _changed(folder: str, before: Mapping[str, Stamp], after: Mapping[str, Stamp]) -> list[str]:
    found = [f"{name} is left in {folder}" for name in sorted(after.keys() - before.keys())]
    return found + [
        f"{name} was changed in {folder}"
        for name in sorted(after.keys() & before.keys())
        if before[name] != after[name]
    ]


def _removed(folder: str, before: Mapping[str, Stamp], after: Mapping[str, Stamp]) -> list[str]:
    return [f"{name} was removed from {folder}" for name in sorted(before.keys() - after.keys())]


def _growth(before: Snapshot, after: Snapshot, growth_bytes: int, deadline: float) -> list[str]:
    held, by_zygotes, has_collected = after.held_bytes, after.zygote_bytes, False
    growth_bytes += snapshots.counting_error()
    while True:
        grown = max(0, held - before.held_bytes)
        # Compared apart: a zygote that ended freed more than a test could leak, which must not hide
        # a leak here. A new zygote cannot be compared.
        is_comparable = len(after.zygotes) <= len(before.zygotes)
        zygote_grown = max(0, by_zygotes - before.zygote_bytes) if is_comparable else 0
        if grown + zygote_grown <= growth_bytes:
            return []
        if has_collected and time.monotonic() > deadline:
            return [
                f"memory has grown by {grown + zygote_grown} bytes, the zygote's by {zygote_grown}"
            ]
        # Garbage is no leak of memory: collect it first, as before the snapshot.
        gc.collect()
        snapshots.give_back()
        has_collected = True
        time.sleep(0.02)
        held = snapshots.held_bytes([os.getpid()])
        by_zygotes = snapshots.held_bytes(after.zygotes)


_GONE = b""  # the place of a file that no longer exists


def _without_those_of_others(names: frozenset[str]) -> list[str]:
    """Return the segments without those that an unrelated process has mapped."""
    ours = {os.getpid(), *limits.descendants(os.getpid())} if names else set()
    others = [pid for pid in processes.pids() if pid not in ours] if names else []
    mapped = {_GONE, *(place for pid in others for place in _mapped(pid))}
    return sorted(name for name in names if _place(f"/dev/shm/{name}") not in mapped)


def _mapped(pid: int) -> set[bytes]:
    """Return the places of the segments that a process has mapped. Not their names: a semaphore
    is mapped before it gets its final name."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as maps:
            return {b" ".join(line.split()[3:5]) for line in maps if b"/dev/shm/" in line}
    except OSError:
        return set()  # the process is another user's, or has ended


def _place(path: str) -> bytes:
    """Return a file's device and inode, in the format of /proc/PID/maps."""
    try:
        status = os.stat(path)
    except OSError:
        return _GONE
    device = status.st_dev
    return b"%02x:%02x %d" % (os.major(device), os.minor(device), status.st_ino)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Disable garbage collection within the block: a snapshot's own garbage could otherwise
    trigger a collection of the test's garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
