"""gRPC's standard health service, which load balancers and orchestrators use."""

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
# Anybody may open a watch and keep it permanently, so watches must not use up all possible calls.
_MOST_WATCHES = 1024
_MOST_WATCHES_OF_CONNECTION = 16
_SERVING, _NOT_SERVING, _UNKNOWN = 1, 2, 3


class Health:
    """Reports whether the whole server (the empty name) and each service answers."""

    def __init__(
        self, is_ready: Callable[[], bool], services: Collection[str], stops: asyncio.Event
    ) -> None:
        self._is_ready = is_ready
        self._services = {"", *services}
        self._watches: Counter[str] = Counter()  # number of watches by connection
        self._stops = stops  # set when the server stops: watches report that, and end

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
            # A client that balances by its watch takes any other status as unhealthy.
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
            watches += Counter()  # drops connections without watches
