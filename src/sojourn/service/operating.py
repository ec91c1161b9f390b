"""What operators need of a server: access control, metrics, logs, the page and the admin API."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sojourn._version import __version__
from sojourn.service.access_log import AccessLog
from sojourn.service.config_changes import is_unchanged
from sojourn.service.failures import Refused, Status
from sojourn.service.handler import Handler
from sojourn.service.http.admin import Admin
from sojourn.service.http.gate import Gate
from sojourn.service.http.operations import Operations
from sojourn.service.http.router import Role, Router
from sojourn.service.log_lines import LogLines
from sojourn.service.metrics import families_of_models
from sojourn.service.page.page import Page
from sojourn.service.reports import Reports
from sojourn.service.tokens import Tokens
from sojourn.service.tracing import Tracing
from sojourn.session.metrics import Family


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """How a server is operated. A part that is None is not offered."""

    tokens: Tokens = field(default_factory=Tokens)
    admin: bool | str = True  # or the address of a separate listener
    access_log: str | None = None  # a file, or "-" for standard output
    tracer: Any = None  # of OpenTelemetry
    log: LogLines | None = None
    drain: Callable[[], None] | None = None
    reload: Callable[[], Awaitable[list[str]]] | None = None
    page: bool = True  # the page for people, at /page/
    page_hosts: tuple[str, ...] = ()  # host names accepted from browsers, besides our own
    history: str | None = None  # a file that preserves the page's data over a restart
    cluster: Callable[[], Mapping[str, Any]] | None = None  # a cluster's `status`, for the page


class Operating:
    """The operating parts of one server, until `close()`."""

    def __init__(self, handler: Handler, operation: Operation) -> None:
        if (reload := operation.reload) is not None:
            operation = replace(operation, reload=lambda: _reloaded(handler.finish(reload())))
        self.gate = Gate(operation.tokens)
        self._handler = handler
        self._operation = operation
        self._started = time.time()
        tracing = None if operation.tracer is None else Tracing(operation.tracer)
        self.reports = Reports(self._is_known, tracing)
        self.addresses: dict[str, str] = {}  # filled in by the server
        self.page: Page | None = None
        if operation.page:
            self.page = Page(
                handler,
                history=operation.history,
                hosts=operation.page_hosts,
                wants_token=lambda: self.gate.tokens.are_wanted,
                addresses=self.addresses,
                drain=operation.drain,
                reload=operation.reload,
                cluster=operation.cluster,
            )

    def add_to(self, router: Router) -> None:
        """Add the routes of the operating parts."""
        self._operations().add_to(router)
        wanted = self._operation
        if self.page is not None:
            self.page.add_to(router, can_act=wanted.admin is True)
        Admin(
            self._handler, self._facts, wanted.log, drain=wanted.drain, reload=wanted.reload
        ).add_to(router)

    def split(self, router: Router) -> Router | None:
        """Remove the admin routes from the complete router, unless they are served there. Returns
        the router of the separate admin listener, if one is configured."""
        if self._operation.admin is True:
            return None
        apart = router.split(Role.ADMIN)
        if self._operation.admin is False:
            return None
        self._operations().add_to(apart)
        if self.page is not None:
            self.page.add_to(apart, can_act=True)
        return apart

    def _operations(self) -> Operations:
        return Operations(self._handler, self._families)

    def open(self) -> None:
        """Open the access log: the server starts."""
        if self._operation.access_log is not None:
            self.reports.log = AccessLog(self._operation.access_log)

    def drain(self) -> None:
        """End all followers of the log: the server stops, and they must not delay it."""
        if self._operation.log is not None:
            self._operation.log.end_following()

    def close(self) -> None:
        """Write the rest of the access log: the server has stopped."""
        if self.reports.log is not None:
            self.reports.log.close()
            self.reports.log = None

    def _is_known(self, model: str) -> bool:
        return model in self._handler.catalogue.names()

    def _families(self) -> Iterator[Family]:
        about = "The version of the server."
        yield "sojourn_server_info", "gauge", about, [("", {"version": __version__}, 1)]
        about = "When the server was started, in seconds since the epoch."
        yield "sojourn_server_start_seconds", "gauge", about, [("", {}, self._started)]
        ready = float(self._handler.is_ready())
        yield "sojourn_server_ready", "gauge", "Whether it takes requests.", [("", {}, ready)]
        yield from self.reports.counts.families()
        yield from families_of_models(self._handler)

    def _facts(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "pid": os.getpid(),
            "started": self._started,
            "is_ready": self._handler.is_ready(),
            "addresses": self.addresses,
            "needs_tokens": self.gate.tokens.are_wanted,
        }


async def _reloaded(told: Awaitable[list[str]]) -> list[str]:
    """Return the result of a reload. Raises Refused if the configuration cannot be used, so that
    the client that requested the reload notices."""
    lines = await told
    if is_unchanged(lines):
        raise Refused(Status.FAILED_PRECONDITION, "\n".join(lines))
    return lines
