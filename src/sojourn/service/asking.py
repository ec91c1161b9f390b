"""A request that waits for a step or is part of a running one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import numpy as np

from sojourn.service.failures import Refused, Status, refusal
from sojourn.service.proving import Outputs
from sojourn.service.targets import Target


class Ask:
    """A request: its target and arrays, when it arrived, and its deadline."""

    __slots__ = ("arrays", "arrived", "deadline", "future", "is_repeated", "key", "rows", "target")

    def __init__(
        self, target: Target, arrays: list[np.ndarray], arrived: float, deadline: float | None
    ) -> None:
        self.target = target
        self.arrays = arrays
        self.key, self.rows = target.key(arrays)
        self.arrived = arrived
        self.deadline = deadline
        self.is_repeated = False
        self.future: asyncio.Future[Outputs] = asyncio.get_running_loop().create_future()

    def rekey(self, target: Target) -> None:
        """Compute the key again if the request is for this target, which is now known to be pure:
        from now on it can be joined with others."""
        if self.target is target:
            self.key, self.rows = target.key(self.arrays)

    def is_wanted(self) -> bool:
        """Whether the request still needs an answer: the client has not left, and it has not
        expired."""
        return not self.future.done()

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(refusal(error))

    def expire(self) -> None:
        self.fail(too_late())


def too_late() -> Refused:
    return Refused(Status.DEADLINE_EXCEEDED, "the request's time was up before it was run")


def latest(asks: Iterable[Ask]) -> float | None:
    """Return the latest deadline of the requests; None if one of them has no deadline."""
    latest = 0.0
    for ask in asks:
        if ask.deadline is None:
            return None
        latest = max(latest, ask.deadline)
    return latest
