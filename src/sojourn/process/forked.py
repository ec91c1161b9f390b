"""A process that the zygote forked for us: measure it, kill it, and report how it ended."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from typing import Any

from sojourn import events
from sojourn.probes import memory
from sojourn.process import limits, marks
from sojourn.process.output import Output
from sojourn.process.worker_ends import OF_A_SPARE, OF_A_WORKER, Ending
from sojourn.process.zygote import Zygote
from sojourn.values import Footprint


class ForkedProcess:
    """The process of a worker. Thread-safe; the subclass sets `pid`, `pidfd` and `output`."""

    pid: int
    pidfd: int
    output: Output

    def __init__(self, name: str, zygote: Zygote, is_spare: bool) -> None:
        self.name = name
        self._zygote = zygote
        self._lock = threading.Lock()
        self._ending: Ending | None = None
        self._is_asked_to_end = False
        self._is_stuck = False
        self.is_foreign = False  # in a fork of the client
        self._mark = marks.new()
        self._kinds = OF_A_SPARE if is_spare else OF_A_WORKER

    def footprint(self) -> Footprint:
        """Return what it holds now: its private memory and the segments it shares with us."""
        reading = memory.of_process(self.pid)
        peak = memory.peak_resident_bytes(self.pid)
        # If it has ended, another process may have its pid by now.
        if reading is None or not self.is_alive:
            return Footprint(0)
        held = reading.worker_bytes
        # Most resident pages belong to the zygote; what the peak had beyond them was its own.
        more = max(0, peak - reading.resident_bytes)
        return Footprint(held, held + more)

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._ending is None and not self._wait_for_end(0)

    def kill(self) -> None:
        """Kill it at once, together with its descendants."""
        if self._ending is not None or self.is_foreign:
            return
        self._note_that_we_asked()
        below = _pidfds(limits.descendants(self.pid))
        # If it has ended, another process may have its pid by now, and these may be that one's
        # descendants; its own orphans were adopted by the zygote, which kills them.
        if not self._wait_for_end(0):
            for pidfd in (self.pidfd, *below):
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        for pidfd in below:
            os.close(pidfd)

    def _note_that_we_asked(self) -> None:
        # A worker that ends without being asked to counts as died.
        self._is_asked_to_end = self._is_asked_to_end or not self._wait_for_end(0)

    def _reap(self) -> Ending:
        with self._lock:
            if self._ending is not None:
                return self._ending
            if self._wait_for_end(5.0):
                status, _ = self._zygote.status_of(self.pid)
                if status is None:  # its zygote may be gone, so nobody else kills its orphans
                    marks.kill_marked(self._mark)
                self._ending = ending = Ending(status, ())
                kind = self._kinds.ended if self._is_asked_to_end else self._kinds.died
            else:
                # The process is in uninterruptible sleep: report it instead of hanging here.
                ending = Ending(None, (self.pid,))
                kind, self._is_stuck = "" if self._is_stuck else self._kinds.stuck, True
        if kind:
            how = "does not end" if ending.left else str(ending)
            facts: dict[str, Any] = {"worker_pid": self.pid, "how": how, "status": ending.status}
            if kind == "worker.died" and (words := self.output.last_words()):
                facts["last_words"] = words
            events.emit(kind, self.name, **facts)
        return ending

    def _wait_for_end(self, seconds: float) -> bool:
        pidfd = self.pidfd
        if pidfd < 0:
            return True  # released, which happens only after its end
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        return bool(poll.poll(seconds * 1000))


def _pidfds(pids: list[int]) -> list[int]:
    found = []
    for pid in pids:
        try:
            found.append(os.pidfd_open(pid))
        except OSError:
            pass
    return found
