"""List all sessions of this user, in any process, for `sojourn top`.

The facts are read from the sessions' status pages and from the kernel. Two readings give a rate.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sojourn.probes import gpu, memory, processes, status_page
from sojourn.probes.status_page import Status, quantile
from sojourn.session.lifecycle import STATE_NAMES


@dataclass(frozen=True, slots=True)
class Listed:
    """One session at one moment. Unknown values are None."""

    name: str
    owner: str
    state: str
    device: str
    engine: str
    isolation: str
    client_pid: int
    program: str  # the program that the client runs
    worker_pid: int
    held_bytes: int | None  # None for an inline session: it shares the memory of its process
    runs: int
    under_way: int
    runs_per_second: float | None
    p50_seconds: float | None
    p99_seconds: float | None
    idle_seconds: float | None
    open_seconds: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


class Lister:
    """Lists sessions repeatedly; from the second call on, rates are known."""

    def __init__(self) -> None:
        self._before: dict[tuple[int, int], tuple[float, int]] = {}

    def list(self) -> list[Listed]:
        """Return the current sessions, ordered by process."""
        now = time.monotonic()
        seen: dict[tuple[int, int], tuple[float, int]] = {}
        listed = []
        for status in status_page.read_all():
            key = (status.client_pid, int(status.facts.get("serial", 0)))
            before = self._before.get(key)
            rate = None
            if before is not None and now > before[0]:
                rate = max(0, status.steps - before[1]) / (now - before[0])
            seen[key] = (now, status.steps)
            listed.append((key, _listed(status, rate, now)))
        self._before = seen
        return [one for _, one in sorted(listed, key=lambda pair: pair[0])]


def _listed(status: Status, rate: float | None, now: float) -> Listed:
    facts = status.facts
    worker_pid = int(facts.get("worker_pid", 0))
    opened = facts.get("opened")
    open_seconds = max(0.0, now - opened) if opened else None
    if status.under_way:
        idle: float | None = 0.0
    elif status.last_step:
        idle = max(0.0, now - status.last_step)
    else:
        idle = open_seconds
    has_steps = any(status.histogram)
    return Listed(
        name=str(facts.get("name", "")),
        owner=str(facts.get("owner", "")),
        state=STATE_NAMES[status.state] if status.state < len(STATE_NAMES) else "?",
        device=str(facts.get("device", "")),
        engine=str(facts.get("engine", "")),
        isolation=str(facts.get("isolation", "")),
        client_pid=status.client_pid,
        program=processes.program_of(status.client_pid),
        worker_pid=worker_pid,
        held_bytes=_held(facts, worker_pid),
        runs=status.steps,
        under_way=status.under_way,
        runs_per_second=rate,
        p50_seconds=quantile(status.histogram, 0.5) if has_steps else None,
        p99_seconds=quantile(status.histogram, 0.99) if has_steps else None,
        idle_seconds=idle,
        open_seconds=open_seconds,
    )


def _held(facts: Mapping[str, Any], worker_pid: int) -> int | None:
    if facts.get("isolation") != "process" or not worker_pid:
        return None
    reading = memory.of_process(worker_pid)
    if reading is None:
        return 0  # it has died, and its client has not noticed yet
    on_devices = 0
    if str(facts.get("device", "")).startswith("gpu"):
        on_devices = sum(gpu.held_by({worker_pid}).values())
    return reading.worker_bytes + on_devices
