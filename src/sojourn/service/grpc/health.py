"""gRPC's own health service: balancers and orchestrators ask it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any

from sojourn.service.failures import Refused, Status
from sojourn.service.grpc.calls import Call, Method, Service, Stream
from sojourn.service.grpc.messages import HEALTH
from sojourn.service.http.router import Role

_LOOK_SECONDS = 1.0
# Anybody may have one, for ever: they must not be all the calls there can be.
_MOST_WATCHES = 1024
_MOST_WATCHES_OF_CONNECTION = 16
_SERVING, _NOT_SERVING, _UNKNOWN = 1, 2, 3


class Health:
    """Says of the whole server (the empty name) and of each service whether it answers."""

    def __init__(
        self, is_ready: Callable[[], bool], services: Collection[str], stops: asyncio.Event
    ) -> None:
        self._is_ready = is_ready
        self._services = {"", *services}
        self._watches: Counter[str] = Counter()  # by connection
        self._stops = stops  # set when the server stops: it says so, and ends the watches

    def service(self) -> Service:
        return Service(
            HEALTH,
            "Health",
            {
                "Check": Method(self._check, Role.ANYBODY),
                "Watch": Stream(self._watch, Role.ANYBODY),
            },
        )

    def _status(self) -> int:
        return _SERVING if self._is_ready() and not self._stops.is_set() else _NOT_SERVING

    async def _check(self, request: Any, call: Call) -> Any:
        if request.service not in self._services:
            raise Refused(Status.NOT_FOUND, f"no service {request.service[:100]!r}")
        return HEALTH.HealthCheckResponse(status=self._status())

    async def _watch(self, request: Any, call: Call) -> AsyncIterator[Any]:
        watches, peer = self._watches, call.peer
        if watches[peer] >= _MOST_WATCHES_OF_CONNECTION or watches.total() >= _MOST_WATCHES:
            # To a client that balances by its watch, any other status says that we are not well.
            raise Refused(Status.UNIMPLEMENTED, "too many watch it already: ask by Check")
        watches[peer] += 1
        known = request.service in self._services
        said = None
        try:
            while True:
                is_last = self._stops.is_set()
                status = self._status() if known else _UNKNOWN
                if status != said:
                    said = status
                    yield HEALTH.HealthCheckResponse(status=status)
                if is_last:
                    return
                try:
                    await asyncio.wait_for(self._stops.wait(), _LOOK_SECONDS)
                except (TimeoutError, asyncio.TimeoutError):
                    pass
        finally:
            watches[peer] -= 1
            watches += Counter()  # without those who have none
