"""The callers that use the cluster, and the models they hold. Pure: times are passed in."""

from __future__ import annotations

from collections.abc import Iterable


class Callers:
    """The callers that reported within the last `limit_seconds`."""

    def __init__(self, limit_seconds: float) -> None:
        self._limit_seconds = limit_seconds
        self._heard: dict[str, float] = {}
        # For models that are removed with their last holder: by model and caller, the time of the
        # last report.
        self._holders: dict[str, dict[str, float]] = {}

    def __len__(self) -> int:
        return len(self._heard)

    def hear(self, caller: str, now: float, holds: Iterable[str] = ()) -> None:
        """Record that a caller is alive and holds these models."""
        self._heard[caller] = now
        for name in holds:
            self.hold(name, caller, now)

    def hold(self, name: str, caller: str, now: float) -> None:
        self._holders.setdefault(name, {})[caller] = now

    def release(self, name: str, caller: str) -> bool:
        """Record that a caller no longer holds a model; return whether another caller still
        does."""
        holders = self._holders.get(name, {})
        holders.pop(caller, None)
        if not holders:
            self._holders.pop(name, None)
        return bool(holders)

    def holds(self, name: str) -> bool:
        """Whether any caller holds this model."""
        return name in self._holders

    def leave(self, caller: str) -> None:
        self._heard.pop(caller, None)
        for name in list(self._holders):
            self.release(name, caller)

    def expire(self, now: float) -> None:
        """Forget callers that have been silent for too long."""
        for caller in [c for c, said in self._heard.items() if now - said > self._limit_seconds]:
            del self._heard[caller]
        for name, holders in list(self._holders.items()):
            for caller in [c for c, said in holders.items() if now - said > self._limit_seconds]:
                self.release(name, caller)
