"""Dispatch of calls: authorizes them, finds the method that answers, and reports them."""

from __future__ import annotations

import asyncio
import operator
import time
from collections.abc import Callable
from typing import Any

from google.protobuf import message_factory

from sojourn.service.access_log import request_id
from sojourn.service.failures import Refused, Status
from sojourn.service.grpc import framing
from sojourn.service.grpc.calls import Service
from sojourn.service.grpc.exchange import Exchange, Route, Seen, refuse
from sojourn.service.grpc.health import Health
from sojourn.service.grpc.kserve import KServe
from sojourn.service.grpc.messages import REFLECTION, REFLECTION_ALPHA
from sojourn.service.grpc.reflection import Reflection
from sojourn.service.grpc.tfserving import Models, Predictions
from sojourn.service.handler import Handler
from sojourn.service.http.bodies import Unfolding
from sojourn.service.http.gate import Gate
from sojourn.service.http.limits import Common
from sojourn.service.http.router import Role
from sojourn.service.http2.connection import Connection
from sojourn.service.http2.stream import Stream
from sojourn.service.listener import Listener
from sojourn.service.reports import Reports

_MOST_CALLS = 4096  # under way at the same time; more are refused
_MOST_CALLS_OF_CONNECTION = 1024
_MOST_LATE = 64  # calls whose message has not arrived within the time that a client may stall
_MOMENT_SECONDS = 0.001


class Dispatch:
    """The calls of all connections of a door, until it stops."""

    def __init__(
        self,
        listener: Listener[Connection],
        common: Common,
        handler: Handler,
        gate: Gate,
        stops: asyncio.Event,
        *,
        reports: Reports | None = None,
        for_admins: bool = True,
    ) -> None:
        self._listener = listener
        self._gate = gate
        self._reports = reports
        self._for_admins = for_admins  # whether this door offers the methods for admins
        self._exchanges: dict[Exchange, None] = {}
        self._stops = stops  # set when no more calls are accepted
        self._routes = {
            route.path: route for service in self._services(handler) for route in _routes(service)
        }
        self.common = common
        self.unfolding = Unfolding(common.limits.body_bytes, Status.RESOURCE_EXHAUSTED)
        self.most_streams = _MOST_CALLS_OF_CONNECTION

    def wake(self) -> None:
        """End the calls that wait for a message, because the door stops."""
        for exchange in list(self._exchanges):
            exchange.stop()

    async def wait_empty(self) -> None:
        """Wait until every call has ended: some can be cancelled only when a thread is done."""
        while self._exchanges:
            await asyncio.sleep(_MOMENT_SECONDS)

    @property
    def is_stopping(self) -> bool:
        """Whether no more calls are accepted."""
        return self._stops.is_set()

    def _services(self, handler: Handler) -> list[Service]:
        offered = [
            made.service() for made in (KServe(handler), Predictions(handler), Models(handler))
        ]
        names = [service.descriptor.full_name for service in offered]
        files = (REFLECTION, REFLECTION_ALPHA)
        listed = [f"{file.descriptor.package}.ServerReflection" for file in files]
        offered.append(Health(handler.is_ready, names, self._stops).service())
        names += [offered[-1].descriptor.full_name, *listed]
        return offered + [Reflection(file, names).service() for file in files]

    # -- called by connections -------------------------------------------------------------------

    def connection(self) -> Connection:
        """Make the protocol of a new connection."""
        return Connection(self)

    def welcome(self, connection: Connection) -> bool:
        return self._listener.welcome(connection)

    def left(self, connection: Connection) -> None:
        self._listener.left(connection)

    def begun(self, stream: Stream) -> Exchange | None:
        """Begin a call when its head is received: it is authorized before its message is read."""
        head = stream.head
        if head.method != "POST" or not head.fields.get("content-type", "").startswith(
            "application/grpc"
        ):
            stream.answer(framing.NO_GRPC, (), b"")
            return None
        fields = head.fields
        seen = Seen(head.path, stream.peer, fields, request_id(fields.get("x-request-id")))
        try:
            route = self._allowed(seen, head.count, head.size)
            exchange = Exchange(self, stream, route, seen)
        except Refused as refused:
            seen.status = refused.status.grpc
            self._tell(seen)
            refuse(stream, refused, seen.request_id)
            return None
        self._exchanges[exchange] = None
        return exchange

    def _allowed(self, seen: Seen, count: int, size: int) -> Route:
        limits = self.common.limits
        if size > limits.header_bytes or count > limits.headers:
            raise Refused(
                Status.RESOURCE_EXHAUSTED,
                f"a head has at most {limits.header_bytes} bytes and {limits.headers} fields",
            )
        route = self._routes.get(seen.path)
        if route is None:
            raise Refused(Status.UNIMPLEMENTED, f"there is no method {seen.path[:200]}")
        if self.is_stopping and route.takes_many:  # it would end before its first message
            raise Refused(Status.UNAVAILABLE, "the server is being stopped", 1.0)
        role = route.method.role
        if role is Role.ADMIN and not self._for_admins:
            raise Refused(Status.PERMISSION_DENIED, f"{seen.path} is not offered here")
        self._gate.admit(role, seen.path, seen.metadata, seen.peer)
        if len(self._exchanges) >= _MOST_CALLS:
            raise Refused(
                Status.RESOURCE_EXHAUSTED, f"{_MOST_CALLS} calls are under way already", 1.0
            )
        return route

    def over(self, exchange: Exchange, seen: Seen) -> None:
        """Remove and report a call that has ended."""
        self._exchanges.pop(exchange, None)
        self._tell(seen)

    def look(self, now: float) -> None:
        """Cut off the calls whose messages have begun but stall. Of the calls whose messages are
        overdue, cut off all if the server is stopping, else the oldest beyond a limit."""
        late = [exchange for exchange in self._exchanges if exchange.is_late]
        most = 0 if self.is_stopping else _MOST_LATE
        stuck = [exchange for exchange in self._exchanges if exchange.is_stuck(now)]
        for exchange in {*late[: max(0, len(late) - most)], *stuck}:
            exchange.cut(Refused(Status.DEADLINE_EXCEEDED, "the message took too long to come"))

    def _tell(self, seen: Seen) -> None:
        if self._reports is not None:
            self._reports.of_grpc(
                seen.path,
                seen.model,
                seen.status,
                time.perf_counter() - seen.began,
                received_bytes=seen.received,
                sent_bytes=seen.sent,
                peer=seen.peer,
                request_id=seen.request_id,
                metadata=seen.metadata,
            )


def _routes(service: Service) -> list[Route]:
    routes = []
    for described in service.descriptor.methods:
        asked = message_factory.GetMessageClass(described.input_type)
        path = f"/{service.descriptor.full_name}/{described.name}"
        method = service.methods[described.name]
        routes.append(Route(path, method, asked, described.client_streaming, _model_of(asked)))
    return routes


def _model_of(asked: Any) -> Callable[[Any], str]:
    """Return a function that reads the model's name from a message of this class."""
    names = asked.DESCRIPTOR.fields_by_name
    for field, path in (("model_name",) * 2, ("model_spec", "model_spec.name"), ("name",) * 2):
        if field in names:
            return operator.attrgetter(path)
    return lambda request: ""
