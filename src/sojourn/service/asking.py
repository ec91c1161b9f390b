"""One request that waits for its step, or is under way in one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import numpy as np

from sojourn.service.failures import Refused, Status, refusal
from sojourn.service.proving import Outputs
from sojourn.service.targets import Target


class Ask:
    """What is asked, when, and by when it must be answered."""

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
        """It can be joined from now on, if it is for this target, which is known to be pure."""
        if self.target is target:
            self.key, self.rows = target.key(self.arrays)

    def is_wanted(self) -> bool:
        """Whether somebody still waits for it: neither has the client left, nor is it too late."""
        return not self.future.done()

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(refusal(error))

    def expire(self) -> None:
        self.fail(too_late())


def too_late() -> Refused:
    return Refused(Status.DEADLINE_EXCEEDED, "the request's time was up before it was run")


def latest(asks: Iterable[Ask]) -> float | None:
    """By when the last of them must be answered; None if one has all the time there is."""
    latest = 0.0
    for ask in asks:
        if ask.deadline is None:
            return None
        latest = max(latest, ask.deadline)
    return latest
