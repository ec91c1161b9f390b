"""A server: one thread, one event loop, and the doors that clients come in by."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from sojourn.pool import Pool
from sojourn.service.catalogue import Catalogue
from sojourn.service.handler import Handler
from sojourn.service.http.door import HttpDoor
from sojourn.service.http.kserve import KServe
from sojourn.service.http.limits import Limits
from sojourn.service.http.router import Router
from sojourn.service.http.tfserving import TfServing
from sojourn.service.operating import Operating, Operation
from sojourn.service.tls import Tls

T = TypeVar("T")

GRACE_SECONDS = 30.0
# Threads that open and close models have the interpreter for so long at most while requests wait:
# Python's own 5 ms would be seen in their latencies.
_SWITCH_SECONDS = 0.0005
_LAST_SECONDS = 1.0  # for what is called off when the loop stops


class Door(Protocol):
    """A way in: it listens from `start` to `stop`."""

    async def start(self, handler: Handler) -> str:
        """Returns the address that clients use."""

    async def stop(self, grace: float) -> None:
        """Take nothing new, and give what is under way `grace` seconds."""


class Server:
    """The models of a pool, behind HTTP and gRPC. It serves until `close()`, best by `with`.

    An address such as `"127.0.0.1:8501"` may have the port 0: then a free one is picked, and
    `http_address` and `grpc_address` tell which; None is no such door. The pool is yours: it stays
    open when the server is closed.
    """

    def __init__(
        self,
        pool: Pool | Catalogue,
        *,
        http: str | None = None,
        grpc: str | None = None,
        limits: Limits | None = None,
        tls: Tls | None = None,
        operation: Operation | None = None,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        catalogue = pool if isinstance(pool, Catalogue) else Catalogue(pool)
        self.handler = Handler(catalogue)
        self.router = Router()
        KServe(self.handler).add_to(self.router)
        TfServing(self.handler).add_to(self.router)
        self._tls = tls
        self._contexts: list[ssl.SSLContext] = []  # of the doors
        self._limits = limits
        operation = operation or Operation()
        if http is None and not isinstance(operation.admin, str):
            operation = replace(operation, page=False)  # it has no door
        self.operating = Operating(self.handler, operation)
        self.operating.add_to(self.router)
        admin = self.operating.split(self.router)
        self._doors: dict[str, Door] = {}
        if http is not None:
            self._doors["http"] = self._http_door(http, self.router)
        if admin is not None:
            self._doors["admin"] = self._http_door(str(operation.admin), admin)
        if grpc is not None:
            from sojourn.service.grpc.door import GrpcDoor

            self._doors["grpc"] = GrpcDoor(
                grpc,
                self._context("h2"),
                self.operating.gate,
                limits=limits,
                reports=self.operating.reports,
                for_admins=operation.admin is True,
            )
        self.addresses = self.operating.addresses
        self.grace_seconds = grace_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._shutting: asyncio.Task[None] | None = None
        self._stopping: set[asyncio.Task[None]] = set()  # the doors, one for each close
        self._doors_are_shut = asyncio.Event()
        self._failure: BaseException | None = None  # of closing it

    @property
    def http_address(self) -> str | None:
        """Where it answers HTTP; None if it does not."""
        return self.addresses.get("http")

    @property
    def grpc_address(self) -> str | None:
        """Where it answers gRPC; None if it does not."""
        return self.addresses.get("grpc")

    @property
    def where(self) -> str:
        """The addresses, for people."""
        return ", ".join(f"{name} at {address}" for name, address in self.addresses.items())

    @property
    def facts(self) -> dict[str, Any]:
        """The addresses, for programs."""
        return dict(self.addresses)

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
        return self.begin(work).result()

    def begin(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Have the server's loop do something."""
        assert self._loop is not None, "it has been started"
        return asyncio.run_coroutine_threadsafe(work(), self._loop)

    def close(self, grace_seconds: float | None = None) -> None:
        """Refuse new requests, finish those under way, stop. May be called twice, also by several
        threads: the one that gives less time hurries the others."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        grace = self.grace_seconds if grace_seconds is None else grace_seconds
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            loop.call_soon_threadsafe(self._begin_to_shut, loop, grace)
        thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def reload_certificates(self) -> None:
        """Have new connections get the certificate that is in its file now."""
        for context in self._contexts:
            assert self._tls is not None
            self._tls.reload(context)

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    # -- on the loop -----------------------------------------------------------------------------

    def _run(self) -> None:
        assert self._loop is not None
        asyncio.set_event_loop(self._loop)
        try:
            with _switching():
                self._loop.run_forever()
        finally:
            for task in self._stopping:  # if shutting has failed
                task.cancel()
            if self._stopping:
                self._loop.run_until_complete(asyncio.wait(self._stopping))
            self._loop.close()

    def _http_door(self, address: str, router: Router) -> HttpDoor:
        door = HttpDoor(
            address,
            router,
            limits=self._limits,
            tls=self._context("http/1.1"),
            gate=self.operating.gate,
        )
        door.observers.append(self.operating.reports.of_http)
        return door

    def _context(self, protocol: str) -> ssl.SSLContext | None:
        if self._tls is None:
            return None
        self._contexts.append(self._tls.context(protocol))
        return self._contexts[-1]

    async def _open(self) -> None:
        self.operating.open()
        if self.operating.page is not None:
            await self.operating.page.start()
        # First the doors: an address that is taken is told at once, and while models are loaded
        # those who ask whether it is alive get an answer.
        for name, door in self._doors.items():
            self.addresses[name] = await door.start(self.handler)
        await self.handler.catalogue.start()

    def _begin_to_shut(self, loop: asyncio.AbstractEventLoop, grace: float) -> None:
        """It is shut once. Who closes it again can only have its doors stopped in less time."""

        def has_ended(task: asyncio.Task[None]) -> None:
            self._failure = None if task.cancelled() else task.exception()
            loop.stop()

        if self._shutting is None:
            self._shutting = loop.create_task(self._shut())
            self._shutting.add_done_callback(has_ended)
        if not self._doors_are_shut.is_set():
            self._stopping.add(loop.create_task(self._stop_doors(grace)))

    async def _stop_doors(self, grace: float) -> None:
        try:
            await asyncio.gather(*(door.stop(grace) for door in self._doors.values()))
        finally:
            self._doors_are_shut.set()

    async def _shut(self) -> None:
        self.handler.is_stopping = True
        self.operating.drain()
        if self.operating.page is not None:
            await self.operating.page.stop()
        await self._doors_are_shut.wait()
        for task in self._stopping:
            if task.done():
                task.result()
        await self.handler.close()
        await self.handler.catalogue.close()
        self.operating.close()
        loop = asyncio.get_running_loop()
        await loop.shutdown_default_executor()
        await loop.shutdown_asyncgens()  # connections of the loop to other nodes end with these
        await _end_others()


_switch_lock = threading.Lock()
_switch_before: list[float] = []  # one for each server that runs in this process


@contextlib.contextmanager
def _switching() -> Iterator[None]:
    """Threads take turns quickly. What was before comes back with the end of the last server."""
    with _switch_lock:
        _switch_before.append(_switch_before[0] if _switch_before else sys.getswitchinterval())
        sys.setswitchinterval(min(_switch_before[0], _SWITCH_SECONDS))
    try:
        yield
    finally:
        with _switch_lock:
            before = _switch_before.pop()
            if not _switch_before:
                sys.setswitchinterval(before)


async def _end_others() -> None:
    """Call off what is still under way here: nobody would finish it once the loop has stopped, and
    who waits for it, or what it holds of gRPC, would stay for ever."""
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=_LAST_SECONDS)
    await asyncio.sleep(0)
