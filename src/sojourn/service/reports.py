"""Report every answered request: count it and, if configured, log and trace it. The same for every
protocol."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sojourn.service.access_log import AccessLog, Entry, timestamp
from sojourn.service.http.messages import Request, Response
from sojourn.service.metrics import RequestCounts
from sojourn.service.tracing import Tracing, trace_id

_HTTP = (("/v1/", "tfserving-rest"), ("/v2", "kserve-rest"), ("", "http"))
_GRPC = (("/tensorflow.", "tfserving-grpc"), ("/inference.", "kserve-grpc"), ("", "grpc"))


@dataclass(frozen=True, slots=True)
class Answered:
    """An answered request of any protocol."""

    protocol: str
    method: str
    path: str
    route: str  # the path without names in it
    model: str
    code: int  # HTTP's, or gRPC's
    has_failed: bool  # by a fault of the server
    seconds: float
    received_bytes: int
    sent_bytes: int
    peer: str
    request_id: str
    headers: Mapping[str, str]


class Reports:
    """Reports every answered request. Used on the server's loop only."""

    def __init__(self, is_known: Callable[[str], bool], tracing: Tracing | None = None) -> None:
        self.counts = RequestCounts(is_known)
        self.log: AccessLog | None = None
        self._tracing = tracing

    def of_http(self, request: Request, response: Response, seconds: float) -> None:
        """Report an HTTP request."""
        sent = len(response.body) if isinstance(response.body, bytes) else 0
        protocol = _protocol_of_http(request.path)
        model = request.parts.get("name", "")
        self.counts.add(protocol, model, response.status, seconds, len(request.body), sent)
        if self.log is not None or self._tracing is not None:
            self._tell(
                Answered(
                    protocol, request.method, request.path, request.route, model, response.status,
                    response.status >= 500, seconds, len(request.body), sent, request.peer,
                    request.request_id, request.headers,
                )
            )  # fmt: skip

    def of_grpc(
        self,
        path: str,
        model: str,
        code: int,
        seconds: float,
        *,
        received_bytes: int = 0,
        sent_bytes: int = 0,
        peer: str = "",
        request_id: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """Report a gRPC call, such as `/inference.GRPCInferenceService/ModelInfer`."""
        protocol = _protocol_of_grpc(path)
        self.counts.add(protocol, model, code, seconds, received_bytes, sent_bytes)
        if self.log is not None or self._tracing is not None:
            self._tell(
                Answered(
                    protocol, "POST", path, path, model, code, code in _GRPC_FAILURES, seconds,
                    received_bytes, sent_bytes, peer, request_id, metadata or {},
                )
            )  # fmt: skip

    def _tell(self, answered: Answered) -> None:
        now = time.time()
        if self._tracing is not None:
            self._tracing.add(answered, now)
        if self.log is not None:
            self.log.write(
                Entry(
                    timestamp(now - answered.seconds), answered.request_id, answered.peer,
                    answered.protocol, answered.method, answered.path, answered.code,
                    round(answered.seconds, 6), answered.received_bytes, answered.sent_bytes,
                    answered.model, trace_id(answered.headers),
                    answered.headers.get("user-agent", ""),
                )
            )  # fmt: skip


_GRPC_FAILURES = {2, 4, 12, 13, 14, 15}  # as OpenTelemetry defines it for servers


def _protocol(table: tuple[tuple[str, str], ...], path: str) -> str:
    return next(protocol for start, protocol in table if path.startswith(start))


# The same paths occur again and again.
_protocol_of_http = functools.lru_cache(1024)(functools.partial(_protocol, _HTTP))
_protocol_of_grpc = functools.lru_cache(1024)(functools.partial(_protocol, _GRPC))
