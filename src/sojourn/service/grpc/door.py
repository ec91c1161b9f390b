"""The gRPC door: it listens, and loads the code for calls when the first client connects."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import ssl
from typing import TYPE_CHECKING

from sojourn.service.handler import Handler
from sojourn.service.http.gate import Gate
from sojourn.service.http.limits import Common, Limits
from sojourn.service.listener import Listener
from sojourn.service.reports import Reports
from sojourn.service.tokens import Tokens

if TYPE_CHECKING:
    from sojourn.service.grpc.dispatch import Dispatch
    from sojourn.service.http2.connection import Connection


class GrpcDoor:
    """A listener at `address`, such as `127.0.0.1:8500`, from `start` to `stop`."""

    def __init__(
        self,
        address: str,
        tls: ssl.SSLContext | None = None,
        gate: Gate | None = None,
        *,
        limits: Limits | None = None,
        reports: Reports | None = None,
        for_admins: bool = True,
    ) -> None:
        self._gate = gate or Gate(Tokens())
        self._reports = reports
        self._for_admins = for_admins
        self._handler: Handler | None = None
        self._stops = asyncio.Event()
        self.common = Common(limits or Limits())
        self._listener: Listener[Connection] = Listener(
            address, self.common, tls, self._connection, self._look
        )

    async def start(self, handler: Handler) -> str:
        """Listen, and return the address with the actual port."""
        # Report a missing package now, not when a client connects.
        for needed in ("google.protobuf", "hpack"):
            if importlib.util.find_spec(needed) is None:
                raise ModuleNotFoundError(f"gRPC needs {needed}, which is not installed")
        self._handler = handler
        return await self._listener.start()

    async def stop(self, grace: float) -> None:
        """Accept no more calls, and give those under way `grace` seconds to finish."""
        self._stops.set()
        if self._has_calls:
            self.calls.wake()
        await self._listener.stop(grace)
        if self._has_calls:
            await self.calls.wait_empty()

    @functools.cached_property
    def calls(self) -> Dispatch:
        """The calls of the clients, created when the first client connects: loading protobuf and
        the tables of HTTP/2 earlier would be a tenth of the server's start time."""
        from sojourn.service.grpc.dispatch import Dispatch

        assert self._handler is not None, "it has been started"
        return Dispatch(
            self._listener,
            self.common,
            self._handler,
            self._gate,
            self._stops,
            reports=self._reports,
            for_admins=self._for_admins,
        )

    @property
    def _has_calls(self) -> bool:
        return "calls" in self.__dict__

    def _connection(self) -> Connection:
        return self.calls.connection()

    def _look(self, now: float) -> None:
        if self._has_calls:
            self.calls.look(now)
