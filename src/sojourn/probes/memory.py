"""Bytes held by a process, as the kernel counts them.

Never from what was asked for, and never from `MemFree`: pages that have been freed sit in lists
of each processor for a while.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Memory:
    """One reading. PSS shares what is shared; private is what would come back if it ended now."""

    pss_bytes: int
    private_bytes: int
    shared_memory_bytes: int
    resident_bytes: int


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
    private = numbers.get("Private_Clean", 0) + numbers.get("Private_Dirty", 0)
    return Memory(numbers["Pss"], private, numbers.get("Pss_Shmem", 0), numbers.get("Rss", 0))


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
