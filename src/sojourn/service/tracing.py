"""A span for every request, in the trace that its client began.

OpenTelemetry is imported only if tracing is enabled. Steps have spans of their own
(`sojourn.events.trace`): a batch belongs to several requests, so no request is its parent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sojourn.service.reports import Answered

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.*")


def trace_id(headers: Mapping[str, str]) -> str:
    """Return the id of the trace that a client began, or ""."""
    match = _TRACEPARENT.fullmatch(headers.get("traceparent", ""))
    return match[1] if match else ""


class Tracing:
    """Creates a span with a tracer for each answered request."""

    def __init__(self, tracer: Any) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = tracer
        self._kind = SpanKind.SERVER
        self._failed = Status(StatusCode.ERROR)
        self._extract = TraceContextTextMapPropagator().extract

    def add(self, answered: Answered, ended: float) -> None:
        """Record the span of one request."""
        is_grpc = "grpc" in answered.protocol
        name = answered.route.lstrip("/") if is_grpc else f"{answered.method} {answered.route}"
        attributes = {
            "url.path": answered.path,
            "client.address": answered.peer,
            "sojourn.model": answered.model,
            "sojourn.protocol": answered.protocol,
            "sojourn.request_id": answered.request_id,
        }
        if is_grpc:
            attributes |= {"rpc.system": "grpc", "rpc.grpc.status_code": str(answered.code)}
        else:
            attributes |= {"http.request.method": answered.method, "http.route": answered.route}
        span = self._tracer.start_span(
            name.strip(),
            context=self._extract(answered.headers),
            kind=self._kind,
            start_time=int((ended - answered.seconds) * 1e9),
            attributes=attributes,
        )
        if not is_grpc:
            span.set_attribute("http.response.status_code", answered.code)
        if answered.has_failed:
            span.set_status(self._failed)
        span.end(int(ended * 1e9))


def tracer() -> tuple[Any, Callable[[], None]]:
    """Return a tracer and a function that shuts it down. The environment (`OTEL_*`) configures
    where spans are sent, by OTLP unless `OTEL_TRACES_EXPORTER` is `console`; a provider that is
    already set up is used as it is."""
    from sojourn._version import __version__

    try:
        from opentelemetry import trace
    except ImportError:
        raise ImportError(_NEEDS) from None
    provider = trace.get_tracer_provider()
    if type(provider).__name__ != "ProxyTracerProvider":
        return provider.get_tracer("sojourn", __version__), lambda: None
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

        exporter: Any
        if os.environ.get("OTEL_TRACES_EXPORTER") == "console":
            import sys

            exporter = ConsoleSpanExporter(out=sys.stderr)
        else:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            exporter = OTLPSpanExporter()
    except ImportError:
        raise ImportError(_NEEDS) from None
    name = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": "sojourn"}
    made = TracerProvider(resource=Resource.create(name), shutdown_on_exit=False)
    made.add_span_processor(BatchSpanProcessor(exporter))
    return made.get_tracer("sojourn", __version__), made.shutdown


_NEEDS = (
    "tracing needs the packages opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http, "
    "or a program that has set up OpenTelemetry"
)
