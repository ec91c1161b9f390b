"""An opening for which engines are tried: it ends when it is called off or its time is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sojourn.errors import SessionClosed, StepTimeout
from sojourn.process.calls import NoAnswer
from sojourn.process.deadlines import Lock, deadline_after, held, left_until

_PAUSE_SECONDS = 0.05


class Attempt:
    """The opening of one session, which any thread may call off."""

    def __init__(self, name: str, timeout: float | None) -> None:
        self._name = name
        self._timeout = timeout
        self._deadline = deadline_after(timeout)
        self._is_called_off = False
        self._under_way: list[Callable[[], None]] = []

    @property
    def seconds_left(self) -> float | None:
        """The seconds until the timeout; None if there is no timeout."""
        return None if self._deadline is None else left_until(self._deadline)

    def is_under_way(self, end: Callable[[], None]) -> None:
        """Register a worker by the function that ends it."""
        self._under_way.append(end)
        if self._is_called_off:
            end()

    def call_off(self) -> None:
        """End all registered workers, and those registered later."""
        self._is_called_off = True
        for end in tuple(self._under_way):
            end()

    def check(self) -> None:
        """Raise SessionClosed if it was called off, and StepTimeout if its time is over."""
        if self._is_called_off:
            raise SessionClosed(f"session {self._name!r} was closed while engines were tried")
        if self.seconds_left == 0:
            raise StepTimeout(f"session {self._name!r} was not open within {self._timeout:g} s")

    def pause(self) -> None:
        """Sleep for a moment; raises like `check`."""
        self.check()
        time.sleep(_PAUSE_SECONDS)

    @contextmanager
    def holding(self, lock: Lock) -> Iterator[None]:
        """Hold a lock that another opening may hold for a long time."""
        try:
            with held(lock, self._deadline):
                self.check()
                yield
        except NoAnswer:
            self.check()
            raise
