"""A step of a leased session that is sent to another node."""

from __future__ import annotations

from typing import Any

import numpy as np

from sojourn.cluster.links import Link
from sojourn.cluster.wire import words


class RemoteStep:
    """A step to send, with what is known about it."""

    at: tuple[Link, words.Leased]  # where the step was sent
    __slots__ = ("arrays", "at", "can_repeat", "fetches", "has_begun", "names", "timeout")

    def __init__(
        self,
        fetches: str | list[str] | None,
        names: list[str],
        arrays: list[np.ndarray],
        timeout: float | None,
    ) -> None:
        self.fetches = fetches
        self.names = names
        self.arrays = arrays
        self.timeout = timeout
        self.can_repeat = False
        self.has_begun = False

    def asked(self, lease: int) -> words.AskStep:
        return words.AskStep(lease, self.fetches, self.names)

    def question(self, lease: int) -> words.RunStep:
        return words.RunStep(lease, self.fetches, self.names, self.timeout)

    @property
    def kind(self) -> tuple[Any, ...]:
        wanted = tuple(self.fetches) if isinstance(self.fetches, list) else self.fetches
        return wanted, tuple(self.names)
