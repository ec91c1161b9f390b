"""Bytes held by a process, as the kernel counts them.

They are never computed from what was requested, and never from `MemFree`: the kernel keeps freed
pages in per-CPU lists for a while.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Memory:
    """One reading of a process's memory.

    PSS divides shared pages among the processes that share them. Private is what this process alone
    has written, which would be freed if it ended now; pages of files are not counted, because the
    kernel can drop them at any time. Anonymous is all memory that is backed by no file, whether
    shared with a parent or not.
    """

    pss_bytes: int
    private_bytes: int
    anonymous_bytes: int
    shared_memory_bytes: int
    resident_bytes: int

    @property
    def worker_bytes(self) -> int:
        """What a worker holds: its private memory and the segments that it and its client map."""
        # Segments are mapped by two processes, so PSS charges each of them half.
        return self.private_bytes + 2 * self.shared_memory_bytes


def of_process(pid: int | str = "self") -> Memory | None:
    """Read what a process holds; None if it has ended."""
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
    """Return the bytes that the kernel counts as this process's data, which RLIMIT_DATA limits."""
    with open("/proc/self/statm") as sizes:
        return int(sizes.read().split()[5]) * resource.getpagesize()


def peak_resident_bytes(pid: int | str = "self") -> int:
    """Return the peak resident memory of a process, 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            for line in status:
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
