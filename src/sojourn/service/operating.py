"""What a server needs to be run by others: who may ask, its numbers, its logs, its admin API."""

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
    """How a server is run. What is None is not offered."""

    tokens: Tokens = field(default_factory=Tokens)
    admin: bool | str = True  # or the address of a door of its own
    access_log: str | None = None  # a file, or "-" for standard output
    tracer: Any = None  # of OpenTelemetry
    log: LogLines | None = None
    drain: Callable[[], None] | None = None
    reload: Callable[[], Awaitable[list[str]]] | None = None
    page: bool = True  # for people, at /page/
    page_hosts: tuple[str, ...] = ()  # names by which browsers may ask for it, besides our own
    history: str | None = None  # a file that keeps over a restart what the page shows
    cluster: Callable[[], Mapping[str, Any]] | None = None  # the `status` of one, for the page


class Operating:
    """The parts, put together for one server. It lives until `close()`."""

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
        """Have its routes answered."""
        self._operations().add_to(router)
        wanted = self._operation
        if self.page is not None:
            self.page.add_to(router, can_act=wanted.admin is True)
        Admin(
            self._handler, self._facts, wanted.log, drain=wanted.drain, reload=wanted.reload
        ).add_to(router)

    def split(self, router: Router) -> Router | None:
        """Take what is for admins out of a router that has everything, if it is not to be there;
        returns where it is then, if anywhere."""
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
        """The server starts."""
        if self._operation.access_log is not None:
            self.reports.log = AccessLog(self._operation.access_log)

    def drain(self) -> None:
        """The server stops: those who follow the log must not hold it up."""
        if self._operation.log is not None:
            self._operation.log.end_following()

    def close(self) -> None:
        """The server has stopped: write what is to be logged."""
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
    """What became of a configuration. Refused if it cannot be used: who asks for it must notice."""
    lines = await told
    if is_unchanged(lines):
        raise Refused(Status.FAILED_PRECONDITION, "\n".join(lines))
    return lines
