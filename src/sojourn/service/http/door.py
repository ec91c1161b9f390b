"""The HTTP door: it listens, limits the connections, and passes requests to their routes."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable

from sojourn.service.access_log import request_id
from sojourn.service.failures import Status, refusal
from sojourn.service.handler import Handler
from sojourn.service.http.bodies import Unfolding
from sojourn.service.http.connection import Connection
from sojourn.service.http.gate import Gate
from sojourn.service.http.heads import KnownHeads
from sojourn.service.http.limits import Common, Limits
from sojourn.service.http.messages import Request, Response, json_response
from sojourn.service.http.router import Role, Route, Router
from sojourn.service.listener import Listener

_log = logging.getLogger("sojourn.service")

Observer = Callable[[Request, Response, float], None]


class HttpDoor:
    """A listener at `address`, such as `127.0.0.1:8501`, from `start` to `stop`."""

    def __init__(
        self,
        address: str,
        router: Router,
        *,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
        gate: Gate | None = None,
    ) -> None:
        self._router = router
        self._gate = gate
        self._common = Common(limits or Limits())
        self._heads = KnownHeads()
        self._unfolding = Unfolding(self._common.limits.body_bytes)
        self._listener = Listener(address, self._common, tls, self._connection)
        self.observers: list[Observer] = []  # called with every answer and its seconds

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._listener.connections)

    async def start(self, handler: Handler) -> str:
        """Listen, and return the address with the actual port."""
        return await self._listener.start()

    async def stop(self, grace: float) -> None:
        """Accept no more requests, and give those under way `grace` seconds to finish."""
        await self._listener.stop(grace)

    def _connection(self) -> Connection:
        return Connection(
            self.answer,
            self._listener.left,
            self._listener.welcome,
            self._common,
            self._heads,
            self._refused,
            self._admit,
        )

    # -- requests --------------------------------------------------------------------------------

    async def answer(self, request: Request) -> Response:
        """Return the response to one request; every error becomes a response too."""
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
        """Report to the observers a request that was refused before it had been read."""
        request.request_id = request_id(None)
        response.headers = {**response.headers, "x-request-id": request.request_id}
        for observer in self.observers:
            observer(request, response, 0.0)

    async def _unfolded(self, request: Request, route: Route) -> Response:
        """Decompress the request's body, and return the response."""
        common, held = self._common, 0

        def hold(count: int) -> None:
            nonlocal held
            held += count
            common.hold(count, request.size)

        coding = request.headers["content-encoding"]
        try:
            request.body = await self._unfolding.whole(request.body, coding, hold)
            return await route.answer(request)
        finally:
            common.give_back(held)

    def _unknown(self, request: Request) -> Response:
        methods = self._router.methods(request.path)
        if methods:
            allowed = ", ".join(sorted({*methods, *(["HEAD"] if "GET" in methods else [])}))
            return json_response({"error": f"this takes {allowed}"}, 405, allow=allowed)
        # The same status and words as TensorFlow Serving.
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
