"""The gRPC door: it listens, says who may call what, and turns failures into status codes."""

from __future__ import annotations

import asyncio
import logging
import operator
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import unquote

import grpc
from google.protobuf import message_factory

from sojourn.service import access_log
from sojourn.service.failures import Refused, Status, refusal
from sojourn.service.grpc.calls import Call, Method, Service, Stream
from sojourn.service.grpc.elements import invalid
from sojourn.service.grpc.health import Health
from sojourn.service.grpc.kserve import KServe
from sojourn.service.grpc.messages import REFLECTION, REFLECTION_ALPHA, DecodeError
from sojourn.service.grpc.reflection import Reflection
from sojourn.service.grpc.tfserving import Models, Predictions
from sojourn.service.handler import Handler
from sojourn.service.http.gate import Gate
from sojourn.service.http.limits import Limits
from sojourn.service.http.router import Role
from sojourn.service.reports import Reports
from sojourn.service.tls import Tls
from sojourn.service.tokens import Tokens

_log = logging.getLogger("sojourn.service")
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_OK = 0
_MOST_WORDS = 1000  # characters: clients refuse trailers of more than 8 KiB
_MOST_CALLS = 4096  # under way at once; more are refused
_MOST_CALLS_OF_CONNECTION = 1024  # more wait for others to end
_MOST_SLOW = 64  # calls whose message takes longer than a client may stall
_LOOK_SECONDS = 0.5
# gRPC looks at the size of a compressed message while it unfolds it, not when it is all there.
_UNFOLDS_IN_BOUNDS = tuple(map(int, grpc.__version__.split(".")[:2])) >= (1, 84)
_ALGORITHMS = "grpc.compression_enabled_algorithms_bitset"  # 1: none


class GrpcDoor:
    """Listens at `address`, such as `127.0.0.1:8500`, from `start` to `stop`."""

    def __init__(
        self,
        address: str,
        tls: Tls | None = None,
        gate: Gate | None = None,
        *,
        limits: Limits | None = None,
        reports: Reports | None = None,
        for_admins: bool = True,
    ) -> None:
        self._address = f"0.0.0.0{address}" if address.startswith(":") else address
        self._tls = tls
        self._certificate: Any = None  # one that new connections are to get
        self._gate = gate or Gate(Tokens())
        self._limits = limits or Limits()
        self._reports = reports
        self._for_admins = for_admins  # whether there is anything for them at this door
        self._server: Any = None
        self._stops: asyncio.Event | None = None
        self._reading: dict[asyncio.Task[Any], _Seen] = {}  # calls whose message is not here yet
        self._held_bytes = 0  # of messages that wait for their answer
        self._looking: asyncio.TimerHandle | None = None

    async def start(self, handler: Handler) -> str:
        """Listen; returns the address, with the port that was picked."""
        limits = self._limits
        compression = [] if _UNFOLDS_IN_BOUNDS else [(_ALGORITHMS, 1)]
        self._stops = asyncio.Event()
        self._server = grpc.aio.server(
            maximum_concurrent_rpcs=_MOST_CALLS,
            options=[
                ("grpc.max_receive_message_length", limits.body_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_metadata_size", limits.header_bytes),
                ("grpc.max_concurrent_streams", _MOST_CALLS_OF_CONNECTION),
                ("grpc.max_connection_idle_ms", int(limits.idle_seconds * 1000)),
                ("grpc.server_handshake_timeout_ms", int(limits.header_seconds * 1000)),
                ("grpc.max_allowed_incoming_connections", limits.connections),
                ("grpc.so_reuseport", 0),  # a port that is taken is an error
                *compression,
            ],
        )
        for service in self._services(handler, self._stops):
            self._server.add_generic_rpc_handlers((self._generic(service),))
        host = self._address.rpartition(":")[0]
        try:
            port = self._listen()
        except BaseException:
            await self._server.start()  # one that never was cannot be stopped, and is left behind
            await self.stop(0)
            raise
        await self._server.start()
        self._look()
        return f"{host}:{port}"

    async def stop(self, grace: float) -> None:
        """Take no more calls, and give those that are under way `grace` seconds."""
        if self._server is None:
            return
        if self._stops is not None:
            self._stops.set()
        await self._server.stop(grace)
        self._server = None
        if self._looking is not None:
            self._looking.cancel()

    def _listen(self) -> int:
        try:
            if self._tls is None:
                return int(self._server.add_insecure_port(self._address))
            credentials = grpc.dynamic_ssl_server_credentials(
                self._certificates(),
                self._renewed,
                require_client_authentication=self._tls.client_ca is not None,
            )
            return int(self._server.add_secure_port(self._address, credentials))
        except RuntimeError as error:
            raise OSError(
                f"cannot listen at {self._address}: the port is taken, or not ours"
            ) from error

    def reload_certificates(self) -> None:
        """Have new connections get the certificate that is in its file now."""
        if self._tls is not None:
            self._certificate = self._certificates()

    def _certificates(self) -> Any:
        assert self._tls is not None
        certificate, key, authority = self._tls.parts()
        return grpc.ssl_server_certificate_configuration([(key, certificate)], authority)

    def _renewed(self) -> Any:
        """What gRPC asks for at each handshake, on a thread of its own: None is as before."""
        renewed, self._certificate = self._certificate, None
        return renewed

    def _services(self, handler: Handler, stops: asyncio.Event) -> list[Service]:
        offered = [
            made.service() for made in (KServe(handler), Predictions(handler), Models(handler))
        ]
        names = [service.descriptor.full_name for service in offered]
        files = (REFLECTION, REFLECTION_ALPHA)
        listed = [f"{file.descriptor.package}.ServerReflection" for file in files]
        offered.append(Health(handler.is_ready, names, stops).service())
        names += [offered[-1].descriptor.full_name, *listed]
        return offered + [Reflection(file, names).service() for file in files]

    # -- calls -----------------------------------------------------------------------------------

    def _generic(self, service: Service) -> Any:
        name = service.descriptor.full_name
        handlers = {}
        for described in service.descriptor.methods:
            method = service.methods[described.name]
            asked = message_factory.GetMessageClass(described.input_type)
            path = f"/{name}/{described.name}"
            if isinstance(method, Method):
                # By this kind of handler we read the message ourselves, once its sender is known.
                handlers[described.name] = grpc.stream_unary_rpc_method_handler(
                    self._one(path, method, asked)
                )
            elif described.client_streaming:
                handlers[described.name] = grpc.stream_stream_rpc_method_handler(
                    self._many(path, method, asked)
                )
            else:
                handlers[described.name] = grpc.unary_stream_rpc_method_handler(
                    self._many(path, method, asked)
                )
        return grpc.method_handlers_generic_handler(name, handlers)

    def _one(self, path: str, method: Method, asked: Any) -> Callable[..., Awaitable[bytes]]:
        model_of = _model_of(asked)

        async def answer(bodies: object, context: Any) -> bytes:
            """Messages come and go as bytes: one that is malformed is the client's fault."""
            seen = _Seen(path)
            try:
                call = self._call(method.role, context, seen)
                request = _parsed(asked, await self._read(context, seen))
                seen.model = model_of(request)
                response = await method.answer(request, call)
                sent = bytes(response.SerializeToString())
                seen.sent = len(sent)
                return sent
            except Exception as error:
                self._fail(error, seen, context)
                return b""  # not sent, as the call has failed
            except asyncio.CancelledError:
                seen.status = Status.CANCELLED.grpc
                raise
            finally:
                self._let_go(seen)
                self._tell(seen)

        return answer

    async def _read(self, context: Any, seen: _Seen) -> bytes:
        """The message of a call. It may take its time, but not when many do."""
        task = asyncio.current_task()
        assert task is not None
        self._reading[task] = seen
        try:
            body = await context.read()
        except asyncio.CancelledError:
            if not seen.is_cut_off:
                raise
            raise Refused(Status.DEADLINE_EXCEEDED, "the message took too long to come") from None
        finally:
            del self._reading[task]
        if not isinstance(body, bytes):
            raise invalid("the call has no message")
        seen.received = len(body)
        self._hold(len(body), seen)
        return body

    def _hold(self, count: int, seen: _Seen) -> None:
        """So many bytes more are held for a call, until it ends."""
        limits = self._limits
        if count > limits.body_bytes:
            raise Refused(
                Status.RESOURCE_EXHAUSTED, f"a request has at most {limits.body_bytes} bytes"
            )
        seen.held += count
        self._held_bytes += count
        if self._held_bytes > max(limits.bodies_bytes, limits.body_bytes):
            raise Refused(Status.UNAVAILABLE, "the server holds as many requests as it can", 1.0)

    def _let_go(self, seen: _Seen) -> None:
        self._held_bytes -= seen.held
        seen.held = 0

    def _look(self) -> None:
        """Cut off the calls whose messages have not come for long, if there are many, or if the
        server waits for them to stop."""
        assert self._stops is not None
        now, most = time.perf_counter(), 0 if self._stops.is_set() else _MOST_SLOW
        slow = [
            (task, seen)
            for task, seen in self._reading.items()
            if now - seen.began > self._limits.stall_seconds
        ]
        for task, seen in slow[: max(0, len(slow) - most)]:
            seen.is_cut_off = True
            task.cancel()
        self._looking = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    def _many(self, path: str, method: Stream, asked: Any) -> Callable[..., AsyncIterator[bytes]]:
        async def answer(body: Any, context: Any) -> AsyncIterator[bytes]:
            seen = _Seen(path)
            try:
                call = self._call(method.role, context, seen)
                if isinstance(body, bytes):
                    self._hold(len(body), seen)
                    given = _parsed(asked, body)
                else:
                    given = self._all_parsed(asked, body, seen)
                async for response in method.answer(given, call):
                    sent = bytes(response.SerializeToString())
                    seen.sent += len(sent)
                    yield sent
            except Exception as error:
                self._fail(error, seen, context)
            except asyncio.CancelledError:
                seen.status = Status.CANCELLED.grpc
                raise
            finally:
                self._let_go(seen)
                self._tell(seen)

        return answer

    async def _all_parsed(
        self, asked: Any, bodies: AsyncIterator[bytes], seen: _Seen
    ) -> AsyncIterator[Any]:
        """The messages of a stream, until the client ends it or the server stops: a stream that is
        silent must not hold that up."""
        assert self._stops is not None
        stops = asyncio.ensure_future(self._stops.wait())
        reading = asyncio.ensure_future(_next(bodies))
        try:
            while True:
                await asyncio.wait((reading, stops), return_when=asyncio.FIRST_COMPLETED)
                body = reading.result() if reading.done() else None
                if body is None:
                    return
                seen.received += len(body)
                self._hold(len(body), seen)
                yield _parsed(asked, body)
                self._let_go(seen)
                reading = asyncio.ensure_future(_next(bodies))
        finally:
            reading.cancel()
            stops.cancel()

    def _call(self, role: Role, context: Any, seen: _Seen) -> Call:
        metadata: dict[str, str] = dict(context.invocation_metadata() or ())
        seen.metadata = metadata
        seen.peer = unquote(context.peer())  # of IPv6 the brackets come encoded
        seen.request_id = access_log.request_id(metadata.get("x-request-id"))
        if role is Role.ADMIN and not self._for_admins:
            raise Refused(Status.PERMISSION_DENIED, f"{seen.path} is not offered here")
        self._gate.admit(role, seen.path, metadata, seen.peer)
        remaining = context.time_remaining()
        deadline = None if remaining is None else time.monotonic() + remaining
        return Call(deadline, seen.request_id, lambda count: self._hold(count, seen), seen.peer)

    def _fail(self, error: Exception, seen: _Seen, context: Any) -> None:
        """Say how the call ends. `context.abort` would do it by an exception that refers to
        itself, and every call to the whole server, until the garbage collector finds it."""
        told = refusal(error)
        if told.status is Status.INTERNAL and told.__cause__ is not None:
            _log.error("request %s: %s", seen.request_id, seen.path, exc_info=told.__cause__)
        seen.status = told.status.grpc
        trailing = [("x-request-id", seen.request_id)]
        if told.retry_after is not None:
            trailing.append(("grpc-retry-pushback-ms", str(round(told.retry_after * 1000))))
        context.set_code(_CODES[told.status.grpc])
        context.set_details(str(told)[:_MOST_WORDS])
        context.set_trailing_metadata(tuple(trailing))

    def _tell(self, seen: _Seen) -> None:
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


class _Seen:
    """What is noted of a call while it is under way. Who calls is asked at the beginning: of a
    stream that its client has left gRPC frees the call, and a question about it is a crash."""

    __slots__ = (
        "began", "held", "is_cut_off", "metadata", "model", "path", "peer", "received",
        "request_id", "sent", "status",
    )  # fmt: skip

    def __init__(self, path: str) -> None:
        self.began = time.perf_counter()
        self.path = path
        self.received = 0
        self.held = 0
        self.is_cut_off = False
        self.sent = 0
        self.status = _OK
        self.request_id = ""
        self.model = ""
        self.peer = ""
        self.metadata: Mapping[str, str] = {}


def _model_of(asked: Any) -> Callable[[Any], str]:
    """How a message of this class names its model."""
    names = asked.DESCRIPTOR.fields_by_name
    for field, path in (("model_name",) * 2, ("model_spec", "model_spec.name"), ("name",) * 2):
        if field in names:
            return operator.attrgetter(path)
    return lambda request: ""


def _parsed(asked: Any, body: bytes) -> Any:
    try:
        return asked.FromString(body)
    except DecodeError:
        raise invalid(f"the message is not a {asked.DESCRIPTOR.full_name}") from None


async def _next(bodies: AsyncIterator[bytes]) -> bytes | None:
    """None at the end: an exception would stay with its task, and with the task all that it saw."""
    async for body in bodies:
        return body
    return None
