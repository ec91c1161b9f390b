"""Bytes held by a process, as the kernel counts them.

Never from what was asked for, and never from `MemFree`: pages that have been freed sit in lists
of each processor for a while.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Memory:
    """One reading.

    PSS divides what is shared among its sharers. Private is what this process alone has written
    and would come back if it ended now; pages of files are not counted, for they can be dropped
    at any time. Anonymous is all that is backed by no file, shared with a parent or not.
    """

    pss_bytes: int
    private_bytes: int
    anonymous_bytes: int
    shared_memory_bytes: int
    resident_bytes: int

    @property
    def worker_bytes(self) -> int:
        """What a worker holds: its private memory and the segments that it and its client map."""
        # Mapped by two, so each of them is charged half.
        return self.private_bytes + 2 * self.shared_memory_bytes


def of_process(pid: int | str = "self") -> Memory | None:
    """What a process holds, or None if it has ended."""
    numbers: dict[str, int] = {}
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as rollup:
            for line in rollup:
                name, _, rest = line.partition(b":")
                if rest.endswith(b"kB\n"):
                    numbers[name.decode()] = int(rest.split()[0]) * 1024
    except OSError:
        return None
    if "Pss" not in numbers:
        return None
    return Memory(
        pss_bytes=numbers["Pss"],
        private_bytes=numbers.get("Private_Dirty", 0) + numbers.get("Swap", 0),
        anonymous_bytes=numbers.get("Anonymous", 0),
        shared_memory_bytes=numbers.get("Pss_Shmem", 0),
        resident_bytes=numbers.get("Rss", 0),
    )


def data_bytes() -> int:
    """What the kernel counts as this process's data, the quantity that RLIMIT_DATA limits."""
    with open("/proc/self/statm") as sizes:
        return int(sizes.read().split()[5]) * resource.getpagesize()


def peak_resident_bytes(pid: int | str = "self") -> int:
    """The most a process ever had resident, 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            for line in status:
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
