"""How a worker ended, and the kinds of the events of its life."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import NamedTuple

from sojourn.engines import shortage


class Kinds(NamedTuple):
    """The kinds of the events in a worker's life."""

    started: str
    ended: str
    died: str
    stuck: str


OF_A_WORKER = Kinds("worker.started", "worker.ended", "worker.died", "worker.stuck")
OF_A_SPARE = Kinds("spare.started", "spare.ended", "spare.died", "spare.stuck")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a worker ended; known once it has been reaped."""

    status: int | None
    left: tuple[int, ...] = ()  # processes that could not be ended

    @property
    def is_out_of_memory(self) -> bool:
        """Whether it ended itself because it ran out of memory."""
        return self.status is not None and self.status == shortage.OUT_OF_MEMORY << 8

    def __str__(self) -> str:
        if self.status is None:
            return "ended (exit status unknown)"
        if os.WIFSIGNALED(self.status):
            number = os.WTERMSIG(self.status)
            return f"was killed by {_name_of_signal(number)}"
        return f"ended with code {os.WEXITSTATUS(self.status)}"


def _name_of_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # a realtime signal; most of these have no name
