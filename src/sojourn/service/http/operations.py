"""Endpoints for operators: liveness, readiness, metrics and the OpenAPI document."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from sojourn.service.handler import Handler
from sojourn.service.http.messages import Request, Response, json_response
from sojourn.service.http.router import Role, Router
from sojourn.service.openapi import document
from sojourn.session.metrics import CONTENT_TYPE, Family, metrics, text


class Operations:
    """Answers from memory, except for the metrics of sessions, which a thread measures."""

    def __init__(self, handler: Handler, families: Callable[[], Iterable[Family]]) -> None:
        self._handler = handler
        self._families = families
        self._scrape: asyncio.Task[str] | None = None

    def add_to(self, router: Router) -> None:
        """Register the routes. Probes carry no tokens, so anybody may use most of them."""
        self._router = router
        anybody, infer = Role.ANYBODY, Role.INFER
        router.add("GET", "/healthz", self.alive, role=anybody, summary="Is it alive?")
        router.add("GET", "/readyz", self.ready, role=anybody, summary="Does it take requests?")
        for path in ("/metrics", "/monitoring/prometheus/metrics"):
            router.add("GET", path, self.metrics, role=infer, summary="Numbers for Prometheus")
        router.add("GET", "/openapi.json", self.openapi, role=anybody, summary="This document")

    async def alive(self, request: Request) -> Response:
        return Response(200, b"ok\n", "text/plain; charset=utf-8")

    async def ready(self, request: Request) -> Response:
        if self._handler.is_ready():
            return Response(200, b"ok\n", "text/plain; charset=utf-8")
        return Response(503, b"not ready\n", "text/plain; charset=utf-8", {"retry-after": "1"})

    async def metrics(self, request: Request) -> Response:
        # Concurrent requests share one measurement.
        if self._scrape is None or self._scrape.done():
            self._scrape = asyncio.create_task(asyncio.to_thread(metrics))
        of_sessions = await asyncio.shield(self._scrape)
        return Response(200, (text(self._families()) + of_sessions).encode(), CONTENT_TYPE)

    async def openapi(self, request: Request) -> Response:
        return json_response(document(self._router))
