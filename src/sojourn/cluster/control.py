"""The caller's interface to the controller."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from typing import Any

from sojourn.cluster.terms import ModelSource

ANSWER_SECONDS = 4.0
_START_SECONDS = 300.0  # until every node has an agent with its zygote
_ORDER_SECONDS = 60.0


class Control:
    """Calls the controller: `call` calls one of its methods, with a timeout; `leave`
    disconnects."""

    def __init__(self, call: Any, leave: Any) -> None:
        self._call = call
        self._leave = leave
        self._client = secrets.token_hex(8)

    def attach(self) -> Any:
        return self._call("attach", self._client, (), timeout=_START_SECONDS)

    def beat(self, holds: Collection[str]) -> Any:
        """Repeat `attach` as a heartbeat; None if the controller does not answer right now."""
        try:
            return self._call("attach", self._client, tuple(holds), timeout=ANSWER_SECONDS)
        except Exception:
            return None

    def detach(self) -> None:
        try:
            self._call("detach", self._client, timeout=_ORDER_SECONDS)
        except Exception:
            pass  # the controller ends by itself without callers
        self._leave()

    def register(self, source: ModelSource) -> None:
        self._call("register", source, self._client, timeout=_ORDER_SECONDS)

    def unregister(self, name: str) -> None:
        self._call("unregister", name, self._client, timeout=_ORDER_SECONDS)

    def evict(self, name: str, timeout: float) -> bool:
        return bool(self._call("evict", name, timeout, timeout=timeout + ANSWER_SECONDS))

    def pin(self, name: str, pinned: bool) -> None:
        self._call("pin", name, pinned, timeout=_ORDER_SECONDS)

    def keep(self, name: str, seconds: float | None) -> None:
        self._call("keep", name, seconds, timeout=_ORDER_SECONDS)

    def locate(self, name: str, timeout: float | None) -> Any:
        return self._call("locate", name, timeout, timeout=timeout)

    def status(self) -> Any:
        return self._call("status", timeout=30.0)
