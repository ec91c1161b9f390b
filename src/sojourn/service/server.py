"""A server: one thread, one event loop, and the doors that clients come in by."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from sojourn.pool import Pool
from sojourn.service.catalogue import Catalogue
from sojourn.service.handler import Handler
from sojourn.service.http.door import HttpDoor
from sojourn.service.http.kserve import KServe
from sojourn.service.http.limits import Limits
from sojourn.service.http.router import Router
from sojourn.service.page.page import Page

T = TypeVar("T")

GRACE_SECONDS = 30.0


class Door(Protocol):
    """A way in: it listens from `start` to `stop`."""

    async def start(self, handler: Handler) -> str:
        """Returns the address that clients use."""

    async def stop(self, grace: float) -> None:
        """Take nothing new, and give what is under way `grace` seconds."""


class Server:
    """The models of a pool, behind HTTP. It serves until `close()`, best by `with`.

    An address such as `"127.0.0.1:8501"` may have the port 0: then a free one is picked, and
    `http_address` tells which. The pool stays open when the server is closed.

    The server shows itself in a browser at `/page/`, unless `page` is False. `history` names a file
    in which what it shows survives a restart.
    """

    def __init__(
        self,
        pool: Pool | Catalogue,
        *,
        http: str | None = "127.0.0.1:8501",
        doors: dict[str, Door] | None = None,
        limits: Limits | None = None,
        grace_seconds: float = GRACE_SECONDS,
        page: bool = True,
        history: str | os.PathLike[str] | None = None,
    ) -> None:
        catalogue = pool if isinstance(pool, Catalogue) else Catalogue(pool)
        self.handler = Handler(catalogue)
        self.router = Router()
        KServe(self.handler).add_to(self.router)
        self._doors: dict[str, Door] = dict(doors or {})
        if http is not None:
            self._doors["http"] = HttpDoor(http, self.router, limits=limits)
        self.addresses: dict[str, str] = {}
        self.page: Page | None = None
        if page:
            self.page = Page(self.handler, history=history, addresses=self.addresses)
            self.page.add_to(self.router)
        self._grace_seconds = grace_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def http_address(self) -> str | None:
        """Where it answers HTTP; None if it does not."""
        return self.addresses.get("http")

    @property
    def grpc_address(self) -> str | None:
        """Where it answers gRPC; None if it does not."""
        return self.addresses.get("grpc")

    def start(self) -> None:
        """Listen, and return when clients are answered."""
        if self._thread is not None:
            raise RuntimeError("a server is started once; make another")
        import uvloop

        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="sojourn-server", daemon=True)
        self._thread.start()
        try:
            self.call(self._open)
        except BaseException:
            self.close()
            raise

    def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Have the server's loop do something, and wait for what comes of it."""
        assert self._loop is not None, "it has been started"
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result()

    def close(self, grace_seconds: float | None = None) -> None:
        """Refuse new requests, finish those under way, stop. May be called twice."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None or loop.is_closed():
            return
        grace = self._grace_seconds if grace_seconds is None else grace_seconds
        self.call(lambda: self._shut(grace))
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    # -- on the loop -----------------------------------------------------------------------------

    def _run(self) -> None:
        assert self._loop is not None
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _open(self) -> None:
        await self.handler.catalogue.start()
        if self.page is not None:
            await self.page.start()
        for name, door in self._doors.items():
            self.addresses[name] = await door.start(self.handler)

    async def _shut(self, grace: float) -> None:
        self.handler.is_stopping = True
        if self.page is not None:
            await self.page.stop()
        await asyncio.gather(*(door.stop(grace) for door in self._doors.values()))
        await self.handler.close()
        await self.handler.catalogue.close()
        await asyncio.get_running_loop().shutdown_default_executor()
