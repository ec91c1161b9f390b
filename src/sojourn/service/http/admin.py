"""The admin API: what the commands `ps`, `load`, `unload`, `logs` and `stop` use.

Only for admins. It can be disabled, or have a separate address.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Annotated, Any

import msgspec

from sojourn.service.failures import Refused, Status, invalid
from sojourn.service.handler import Handler
from sojourn.service.http.messages import Request, Response, json_response
from sojourn.service.http.router import Role, Router
from sojourn.service.log_lines import KEPT_LINES, LogLines
from sojourn.service.served import VersionStatus
from sojourn.values import Receipt


class _Wish(msgspec.Struct, forbid_unknown_fields=True):
    version: Annotated[int, msgspec.Meta(ge=1)] | None = None


class Admin:
    """Translates between HTTP and the handler, the pool and the server, which do the work."""

    def __init__(
        self,
        handler: Handler,
        facts: Callable[[], Mapping[str, Any]],
        log: LogLines | None = None,
        *,
        drain: Callable[[], None] | None = None,
        reload: Callable[[], Awaitable[list[str]]] | None = None,
    ) -> None:
        self._handler = handler
        self._pool = handler.catalogue.pool
        self._facts = facts
        self._log = log
        self._drain = drain
        self._reload = reload

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        for method, path, answer, summary in (
            ("GET", "/admin/status", self.status, "The server, its models and their memory"),
            ("GET", "/admin/logs", self.logs, "The last lines of the log; ?follow=1 for new ones"),
            ("POST", "/admin/drain", self.drain, "Answer what is under way, then stop"),
            ("POST", "/admin/reload", self.reload, "Read the configuration again"),
            ("POST", "/admin/models/{name}/load", self.load, "Have a model in service"),
            ("POST", "/admin/models/{name}/unload", self.unload, "Take a model out of service"),
            ("POST", "/admin/models/{name}/evict", self.evict, "Give a model's memory back"),
            ("POST", "/admin/models/{name}/pin", self.pin, "Never close it for others"),
            ("POST", "/admin/models/{name}/unpin", self.unpin, "Close it for others again"),
        ):
            router.add(method, path, answer, role=Role.ADMIN, summary=summary)

    async def status(self, request: Request) -> Response:
        stats = self._pool.stats()
        memory = {"charged_bytes": stats.charged_bytes, "limit_bytes": stats.limit_bytes}
        now, own_name = time.monotonic(), self._handler.catalogue.own_name
        pinned, leaves = set(), {}
        for copy in stats.copies:
            name = own_name(copy.model)
            if copy.pinned:
                pinned.add((name, copy.version))
            if copy.leaves_at is not None:
                leaves[name, copy.version] = max(0.0, copy.leaves_at - now)
        models = [
            {
                **_plain(one),
                "pinned": (one.name, one.version) in pinned,
                "leaves_in_seconds": leaves.get((one.name, one.version)),
            }
            for one in self._handler.statuses()
        ]
        return json_response({**self._facts(), "memory": memory, "models": models})

    async def load(self, request: Request) -> Response:
        name, version = _wished(request)
        await self._handler.load(name, version=version)
        return json_response({"models": [_plain(one) for one in self._handler.statuses(name)]})

    async def unload(self, request: Request) -> Response:
        name, version = _wished(request)
        receipts = await self._handler.unload(name, version=version)
        return json_response({"receipts": [_told(receipt) for receipt in receipts]})

    async def evict(self, request: Request) -> Response:
        return json_response({"evicted": await self._handler.evict(*_wished(request))})

    async def pin(self, request: Request) -> Response:
        return self._pinned(request, True)

    async def unpin(self, request: Request) -> Response:
        return self._pinned(request, False)

    async def drain(self, request: Request) -> Response:
        if self._drain is None:
            raise Refused(Status.UNIMPLEMENTED, "the program that has this server must close it")
        # Not at once, so that the answer is sent first.
        asyncio.get_running_loop().call_soon(self._drain)
        return json_response({"draining": True}, 202)

    async def reload(self, request: Request) -> Response:
        if self._reload is None:
            raise Refused(Status.UNIMPLEMENTED, "this server has no configuration to read again")
        return json_response({"messages": await self._reload()})

    async def logs(self, request: Request) -> Response:
        if self._log is None:
            raise Refused(Status.UNIMPLEMENTED, "the program that has this server keeps its log")
        asked = request.parameters()
        lines = asked.get("lines", "100")
        if not (lines.isascii() and lines.isdigit() and len(lines) < 10):
            raise invalid("lines must be a whole number")
        count = min(int(lines), KEPT_LINES)
        content_type = "text/plain; charset=utf-8"
        if asked.get("follow") in (None, "0"):
            text = "".join(f"{line}\n" for line in self._log.last(count))
            return Response(200, text.encode(), content_type)
        return Response(200, _encoded(self._log.follow(count)), content_type)

    def _pinned(self, request: Request, pinned: bool) -> Response:
        name, version = _wished(request)
        self._handler.pin(name, pinned, version)
        return json_response({"pinned": pinned})


def _wished(request: Request) -> tuple[str, int | None]:
    try:
        wish = msgspec.json.decode(request.body, type=_Wish) if request.body else _Wish()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise invalid(f"the request: {error}") from None
    return request.parts["name"], wish.version


def _plain(status: VersionStatus) -> dict[str, Any]:
    return {
        "name": status.name,
        "version": status.version,
        "state": status.state.name,
        "error": status.error,
        "labels": status.labels,
        "is_loaded": status.is_loaded,
        "memory_bytes": status.memory,
        "copies": status.copies,
        "uses": status.uses,
        "failures": status.failures,
        "retry_seconds": status.retry_seconds,
        "receipt": None if status.receipt is None else _told(status.receipt),
    }


def _told(receipt: Receipt) -> dict[str, Any]:
    return {**receipt.to_dict(), "text": str(receipt)}


async def _encoded(lines: AsyncIterator[str]) -> AsyncIterator[bytes]:
    async for line in lines:
        yield f"{line}\n".encode()
