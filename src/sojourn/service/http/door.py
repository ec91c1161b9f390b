"""The HTTP door: it listens, keeps the connections in bounds, and has requests answered."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable

from sojourn.process.aside import aside
from sojourn.service.access_log import request_id
from sojourn.service.addresses import listening, name_of
from sojourn.service.failures import Refused, Status, refusal
from sojourn.service.handler import Handler
from sojourn.service.http import bodies
from sojourn.service.http.connection import Connection
from sojourn.service.http.gate import Gate
from sojourn.service.http.limits import Limits
from sojourn.service.http.messages import Request, Response, json_response
from sojourn.service.http.phases import Common
from sojourn.service.http.router import Role, Route, Router

_LOOK_SECONDS = 0.5
_FOLDED_BYTES = 2**14  # from here on a body is decompressed on a thread: it may be much larger
_MOST_UNFOLDING = 4  # at once: what each has not told yet is not counted
_log = logging.getLogger("sojourn.service")

Observer = Callable[[Request, Response, float], None]


class HttpDoor:
    """Listens at `address`, such as `127.0.0.1:8501`, from `start` to `stop`."""

    def __init__(
        self,
        address: str,
        router: Router,
        *,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
        gate: Gate | None = None,
    ) -> None:
        self._address = address
        self._router = router
        self._limits = limits or Limits()
        self._tls = tls
        self._gate = gate
        self._server: asyncio.AbstractServer | None = None
        self._connections: set[Connection] = set()
        self._common = Common()
        self._unfolding = asyncio.Semaphore(_MOST_UNFOLDING)
        self._looking: asyncio.TimerHandle | None = None
        self._everybody_left: asyncio.Event | None = None
        self.observers: list[Observer] = []  # told of every answer and the seconds it took

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    async def start(self, handler: Handler) -> str:
        """Listen; returns the address, with the port that was picked."""
        loop = asyncio.get_running_loop()
        bound = listening(self._address)
        try:
            self._server = await loop.create_server(
                self._connection,
                sock=bound,
                ssl=self._tls,
                backlog=1024,
                ssl_handshake_timeout=None if self._tls is None else self._limits.header_seconds,
            )
        except BaseException:
            bound.close()
            raise
        self._look()
        return name_of(bound)

    async def stop(self, grace: float) -> None:
        """Take no more requests, and give those that are under way `grace` seconds."""
        if self._server is None:
            return
        await asyncio.sleep(0)  # those who have connected already are let in
        self._server.close()
        self._everybody_left = asyncio.Event()
        for connection in list(self._connections):
            connection.drain()
        if self._connections:
            try:
                await asyncio.wait_for(self._everybody_left.wait(), grace)
            except (TimeoutError, asyncio.TimeoutError):
                pass
        for connection in list(self._connections):
            connection.abort()
        while self._connections:
            await asyncio.sleep(0)
        await self._server.wait_closed()
        if self._looking is not None:
            self._looking.cancel()

    # -- connections -----------------------------------------------------------------------------

    def _connection(self) -> Connection:
        return Connection(
            self.answer,
            self._limits,
            self._leave,
            self._is_welcome,
            self._common,
            self._refused,
            self._admit,
        )

    def _is_welcome(self, connection: Connection) -> bool:
        self._connections.add(connection)
        return len(self._connections) <= self._limits.connections

    def _leave(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if self._everybody_left is not None and not self._connections:
            self._everybody_left.set()

    def _look(self) -> None:
        self._common.now = now = time.monotonic()
        for connection in list(self._connections):
            connection.look(now)
        self._looking = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    # -- requests --------------------------------------------------------------------------------

    async def answer(self, request: Request) -> Response:
        """The response to one request, whatever happens."""
        began = time.perf_counter() if self.observers else 0.0
        request.request_id = request_id(request.headers.get("x-request-id"))
        try:
            found = self._router.find(request.method, request.path)
            if found is None:
                response = self._unknown(request)
            else:
                route, request.parts = found
                request.route = route.pattern
                if self._gate is not None:
                    self._gate.check(request, route)
                if "content-encoding" in request.headers:
                    response = await self._unfolded(request, route)
                else:
                    response = await route.answer(request)
        except Exception as error:
            response = self._failed(request, error)
        response.headers = {**response.headers, "x-request-id": request.request_id}
        for observer in self.observers:
            observer(request, response, time.perf_counter() - began)
        return response

    def _admit(self, request: Request) -> None:
        """Raise Refused unless a request with a large body may be read."""
        if self._gate is not None:
            found = self._router.find(request.method, request.path)
            if found is not None:
                self._gate.check(request, found[0])
            self._gate.admit(Role.INFER, request.path, request.headers, request.peer)

    def _refused(self, request: Request, response: Response) -> None:
        """A request was refused before it had been read."""
        request.request_id = request_id(None)
        response.headers = {**response.headers, "x-request-id": request.request_id}
        for observer in self.observers:
            observer(request, response, 0.0)

    async def _unfolded(self, request: Request, route: Route) -> Response:
        """The response to a request whose body is to be decompressed. What it unfolds to counts as
        held, as it comes: a client need not send much to have a lot."""
        limits, common, held = self._limits, self._common, 0
        unfolding = bodies.decompressed(request, limits.body_bytes)
        is_small = len(request.body) < _FOLDED_BYTES
        pieces: list[bytes] = []
        try:
            while True:
                if is_small:
                    some = bodies.some(unfolding)
                else:
                    async with self._unfolding:
                        some = await aside(lambda: bodies.some(unfolding))
                if not some:
                    break
                pieces += some
                count = sum(map(len, some))
                held += count
                common.held_bytes += count
                if common.held_bytes - request.size > max(limits.bodies_bytes, limits.body_bytes):
                    raise Refused(
                        Status.UNAVAILABLE, "the server holds as many requests as it can", 1.0
                    )
            request.body = pieces.pop() if len(pieces) == 1 else b"".join(pieces)
            pieces.clear()
            return await route.answer(request)
        finally:
            common.held_bytes -= held

    def _unknown(self, request: Request) -> Response:
        methods = self._router.methods(request.path)
        if methods:
            allowed = ", ".join(sorted({*methods, *(["HEAD"] if "GET" in methods else [])}))
            return json_response({"error": f"this takes {allowed}"}, 405, allow=allowed)
        # As TensorFlow Serving has it.
        status = 400 if request.path.startswith("/v1/") else 404
        return json_response(
            {"error": f"Malformed request: {request.method} {request.path}"}, status
        )

    def _failed(self, request: Request, error: Exception) -> Response:
        told = refusal(error)
        if told.status is Status.INTERNAL and told.__cause__ is not None:
            _log.error(
                "request %s: %s %s",
                request.request_id,
                request.method,
                request.path,
                exc_info=told.__cause__,
            )
        response = json_response({"error": str(told)}, told.status.http)
        if told.retry_after is not None:
            response.headers = {"retry-after": str(max(1, round(told.retry_after)))}
        elif told.status is Status.UNAUTHENTICATED:
            response.headers = {"www-authenticate": "Bearer"}
        return response
