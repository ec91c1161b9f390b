"""What a piece of code leaves behind in this process and around it.

Take a snapshot before, ask `leftovers` after. A difference is looked at again for a short while
before it is called a leak: threads that have ended take a moment to be gone.
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
    """What is there now and was not there before, a sentence each. Empty is good.

    With `growth_bytes`, the memory of this process and its zygote, private and shared, may have
    grown by no more; nor may, if the snapshot is a strict one, threads have come that Python knows
    nothing of. Leave that out where a framework that runs in this process grows as it likes. Leave
    the `temporary_folder` out, and with it that for things of a running program (XDG_RUNTIME_DIR),
    where other programs use it too.
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
        # One that was moved to another number is the same, one that took another's place is not.
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
    # A zygote that was replaced starts anew; one that stayed must not collect descriptors. Where
    # one for another framework has come, there is nothing to compare.
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
        # One that ended gave back more than a test could leak: that must not be offset. One that
        # is new has nothing to be compared with.
        is_comparable = len(after.zygotes) <= len(before.zygotes)
        zygote_grown = max(0, by_zygotes - before.zygote_bytes) if is_comparable else 0
        if grown + zygote_grown <= growth_bytes:
            return []
        if has_collected and time.monotonic() > deadline:
            return [
                f"memory has grown by {grown + zygote_grown} bytes, the zygote's by {zygote_grown}"
            ]
        # What garbage holds is no leak of memory: it goes first, as it did before the snapshot.
        gc.collect()
        snapshots.give_back()
        has_collected = True
        time.sleep(0.02)
        held = snapshots.held_bytes([os.getpid()])
        by_zygotes = snapshots.held_bytes(after.zygotes)


def _without_those_of_others(names: frozenset[str]) -> list[str]:
    """Leave out the segments that another process has mapped: they are not ours."""
    suspects = {name.encode(): name for name in names}
    ours = {os.getpid(), *limits.descendants(os.getpid())} if suspects else set()
    for pid in processes.pids() if suspects else ():
        if pid in ours:
            continue
        try:
            with open(f"/proc/{pid}/maps", "rb") as maps:
                mapped = {line.partition(b"/dev/shm/")[2].rstrip() for line in maps}
        except OSError:
            continue  # another user's, or it has ended
        for name in mapped:
            suspects.pop(name, None)
    return sorted(suspects.values())


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Looking around makes garbage of its own, which may not have the test's collected."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
